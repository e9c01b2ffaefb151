/* Order finding and search on a simulated quantum register, with libquantum's gates.
 *
 * Stands for SPEC's libquantum, which factors a number. Arguments: the number to factor, a base
 * prime to it, and the width in bits of the searched space. Two parts, since they stress the
 * library differently: modular exponentiation and Fourier transform over a sparse register,
 * then amplitude amplification over a dense one (streaming passes over a large array).
 *
 * The library measures with rand(), which is never seeded here, so every run is the same.
 */
#include <complex.h>
#include <math.h>
#include <quantum.h>
#include <stdio.h>
#include <stdlib.h>

static int power_mod(int base, int exponent, int modulus)
{
    long result = 1;

    while (exponent-- > 0)
        result = result * base % modulus;
    return (int)result;
}

static void find_order(int number, int base)
{
    int width = quantum_getwidth(number * number);
    int scratch = quantum_getwidth(number);
    quantum_reg reg = quantum_new_qureg(0, width);

    for (int bit = 0; bit < width; bit++)
        quantum_hadamard(bit, &reg);
    quantum_addscratch(3 * scratch + 2, &reg);
    quantum_exp_mod_n(number, base, width, scratch, &reg);
    printf("%d states after exponentiation\n", reg.size);

    for (int bit = 0; bit < 3 * scratch + 2; bit++)
        quantum_bmeasure(0, &reg);
    quantum_qft(width, &reg);
    for (int bit = 0; bit < width / 2; bit++) {
        quantum_cnot(bit, width - bit - 1, &reg);
        quantum_cnot(width - bit - 1, bit, &reg);
        quantum_cnot(bit, width - bit - 1, &reg);
    }

    int measured = (int)quantum_measure(reg), order = 1 << width;
    if (measured <= 0) {
        printf("measured nothing\n");
    } else {
        int phase = measured;
        quantum_frac_approx(&phase, &order, width);
        int half = power_mod(base, order / 2, number);
        printf("measured %d of %d, order %d, factors %d and %d\n", measured, 1 << width, order,
               quantum_gcd(number, half + 1), quantum_gcd(number, half - 1));
    }
    quantum_delete_qureg(&reg);
}

/* Flips the sign of the one state whose low `width` bits are `wanted`. */
static void mark(int wanted, int width, quantum_reg *reg)
{
    for (int i = 0; i < reg->size; i++)
        if ((int)(reg->state[i] & ((1ull << width) - 1)) == wanted)
            reg->amplitude[i] = -reg->amplitude[i];
}

static void search(int wanted, int width)
{
    int rounds = (int)(M_PI / 4 * sqrt((double)(1 << width)) / 2);
    quantum_reg reg = quantum_new_qureg(0, width);

    for (int bit = 0; bit < width; bit++)
        quantum_hadamard(bit, &reg);
    for (int round = 0; round < rounds; round++) {
        mark(wanted, width, &reg);
        for (int bit = 0; bit < width; bit++)
            quantum_hadamard(bit, &reg);
        mark(0, width, &reg);
        for (int bit = 0; bit < width; bit++)
            quantum_hadamard(bit, &reg);
    }
    for (int i = 0; i < reg.size; i++)
        if (quantum_prob(reg.amplitude[i]) > 0.1)
            printf("state %llu with probability %.4f\n", reg.state[i],
                   quantum_prob(reg.amplitude[i]));
    quantum_delete_qureg(&reg);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s NUMBER BASE BITS\n", argv[0]);
        return 64;
    }
    find_order(atoi(argv[1]), atoi(argv[2]));
    search(0x155 & ((1 << atoi(argv[3])) - 1), atoi(argv[3]));
    return 0;
}
