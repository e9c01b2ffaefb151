/* std::random_device, which is rdrand or rdseed inside the library where the processor has them. */
#include <cstdio>
#include <fstream>
#include <random>

int main() {
    std::random_device d;
    unsigned v[64], same = 0;
    for (unsigned &x : v) x = d();
    for (unsigned x : v) same += x == v[0];
    std::ofstream("/dev/null").write(reinterpret_cast<char *>(v), sizeof v);
    std::printf("differ: %s\n", same < 4 ? "yes" : "no");
    return same >= 4;
}
