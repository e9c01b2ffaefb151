/* Calls: how every Linux system call is treated, as data.
 *
 * One row per system-call number in calls.def, one row per command in ioctl.def,
 * fcntl.def and prctl.def. The agent compares and carries arguments from these rows
 * alone; docs/reference/system-calls.md is generated from them; build.rs refuses to build when a
 * number below SF_CALLS_MAX has no row. What no row describes stops the group.
 *
 * Not covered: what a call does to kernel state after a change of leader
 * (docs/concepts/replication.md, "Change of leader").
 */
#ifndef SF_TABLES_H
#define SF_TABLES_H

#include <stdint.h>

/* Who executes a call, and what has to be agreed before it happens. */
enum sf_class {
	SF_REFUSE = 0, /* the group stops before the call; the row's note says why and the fix */
	SF_DENY,       /* nobody executes; every replica gets the errno of the row */
	SF_LOCAL,      /* answered inside each replica from replicated state; no kernel, no log */
	SF_QUERY,      /* leader executes; changes no kernel state, so followers may lag */
	SF_LEAD,       /* leader executes once all replicas agree; results are copied */
	SF_COMMIT,     /* as SF_LEAD, and bytes or effects leave the group: output commit */
	SF_ALL,        /* every replica executes on its own state, after agreement; results compared */
};

/* How one argument is compared before the call and carried after it. */
enum sf_arg_kind {
	SF_A_NONE = 0, /* not an argument of this call: neither compared nor passed */
	SF_A_I32,      /* as VAL; the kernel reads an int: as a length only bits 0..31 count, < 0 is 0 */
	SF_A_U32,      /* as VAL; the kernel reads an unsigned int: bits 0..31 count, zero-extended */
	SF_A_VAL,      /* a number, compared verbatim (layouts are equal, so pointers too); kinds
	                * up to here point to nothing */
	SF_A_STR,      /* in: NUL-terminated bytes, compared by content */
	SF_A_IN,       /* in: bytes, compared by content */
	SF_A_OUT,      /* out: bytes the kernel writes; copied from the leader */
	SF_A_INOUT,    /* both: compared before, copied after */
	SF_A_IN_IOV,   /* in: struct iovec array, `len` names the count; contents compared */
	SF_A_OUT_IOV,  /* out: struct iovec array, first RET bytes copied */
	SF_A_IN_MSG,   /* in: struct msghdr (name, iov, control) */
	SF_A_OUT_MSG,  /* out: struct msghdr (name, iov, control, flags) */
	SF_A_OUT_ADDR, /* out: bytes whose int length is in/out through the pointer in argument `len` */
	SF_A_FDSET,    /* in and out: fd_set, `len` names nfds */
	SF_A_STRV,     /* in: array of pointers to strings, NULL ends it; the strings compared by content */
	SF_A_OUT_PAGES, /* out: one byte per 4 KiB page begun by the length in argument `len` (mincore) */
	SF_A_IFCONF,    /* both: struct ifconf, and out: the bytes that it points to, as many as it says afterwards */
};

/* When an OUT, INOUT, OUT_ADDR, OUT_MSG or FDSET argument is carried after the call.
 * The kernel writes some of them although the call fails, and some only if it fails;
 * carrying bytes the kernel did not write would spread one replica's fault to all. */
enum sf_when {
	SF_W_OK = 0, /* result >= 0 */
	SF_W_POS,    /* result > 0 (wait4: nothing is stored when no child was reaped) */
	SF_W_ALWAYS, /* whatever the result */
	SF_W_EINTR,  /* result is -EINTR alone (nanosleep's remaining time) */
	SF_W_CAME,   /* result >= 0 or -EINTR: the kernel has come to an end of it, and refused nothing */
	SF_W_NAMED,  /* result >= 0, and the address whose length it is, the argument before it, is not NULL: else the
	              * kernel does not even look at it */
};

/* Where a length comes from. */
#define SF_L_ONE 0xff /* the row's size alone */
#define SF_L_RET 0xfe /* the call's result (bytes or elements written) */
#define SF_L_NUL 0xfd /* out: a NUL-terminated string */
#define SF_L_CAPS 0xfc /* as many as the capability sets of the header in argument 0 take: capget(2) */
/* 0..5: the value of that argument */

struct sf_arg {
	uint8_t kind;
	uint8_t len;   /* SF_L_* or an argument index */
	uint8_t cap;   /* argument index that bounds an out buffer, or SF_L_ONE for no bound */
	uint8_t when;  /* enum sf_when */
	uint16_t size; /* bytes of one element */
	uint16_t plus; /* bytes before the first element, 0 for nearly all (msgsnd's mtype: 8) */
};
/* bytes of an argument = plus + size * length(len), the length at most value(cap).
 * A length of SF_L_RET with a negative result is no bytes at all, `plus` included. */

struct sf_call {
	const char *name;
	uint8_t class;
	uint8_t handler; /* enum sf_handler: SF_H_generic or the function with special knowledge */
	int16_t err;     /* errno of SF_DENY; 0: the call is answered with result 0 */
	struct sf_arg arg[6];
	const char *note;
};

/* Shorthands used by the .def files. A NULL pointer argument is always "absent". */
#define SF_ARG(k, l, c, s) { SF_A_##k, l, c, SF_W_OK, s, 0 }
#define SF_ARG_WHEN(k, l, c, s, w) { SF_A_##k, l, c, SF_W_##w, s, 0 }
#define SF_ARG_PLUS(k, l, c, s, p) { SF_A_##k, l, c, SF_W_OK, s, p }
#define N_ { SF_A_NONE, 0, 0, 0, 0, 0 }
#define V_ { SF_A_VAL, 0, 0, 0, 0, 0 }
#define I_ { SF_A_I32, 0, 0, 0, 0, 0 }
#define U_ { SF_A_U32, 0, 0, 0, 0, 0 }
#define STR_ SF_ARG(STR, SF_L_NUL, SF_L_ONE, 1)
#define STRV_ SF_ARG(STRV, SF_L_NUL, SF_L_ONE, 8)
#define IN_(len, size) SF_ARG(IN, len, SF_L_ONE, size)           /* len: argument index */
#define IN1_(size) SF_ARG(IN, SF_L_ONE, SF_L_ONE, size)          /* one struct of `size` */
#define OUT_(len, cap, size) SF_ARG(OUT, len, cap, size)
#define OUT1_(size) SF_ARG(OUT, SF_L_ONE, SF_L_ONE, size)
#define INOUT_(len, size) SF_ARG(INOUT, len, SF_L_ONE, size)
#define INOUT1_(size) SF_ARG(INOUT, SF_L_ONE, SF_L_ONE, size)
#define IN_IOV_(count) SF_ARG(IN_IOV, count, SF_L_ONE, 16)  /* struct iovec: base, length */
#define OUT_IOV_(count) SF_ARG(OUT_IOV, count, SF_L_ONE, 16)
#define IN_MSG_ SF_ARG(IN_MSG, SF_L_ONE, SF_L_ONE, 56)      /* struct user_msghdr */
#define OUT_MSG_ SF_ARG(OUT_MSG, SF_L_ONE, SF_L_ONE, 56)
#define OUT_ADDR_(len) SF_ARG(OUT_ADDR, len, SF_L_ONE, 1)   /* len: the argument that is an int pointer */
#define FDSET_(nfds) SF_ARG(FDSET, nfds, SF_L_ONE, 8)       /* 8 bytes per 64 descriptors begun */
#define OUT_PAGES_(len) SF_ARG(OUT_PAGES, len, SF_L_ONE, 1)
#define IFCONF_ SF_ARG(IFCONF, SF_L_ONE, SF_L_ONE, 16)
#define RET_ SF_L_RET
#define ONE_ SF_L_ONE
#define CAPS_ SF_L_CAPS

/* Rows. Each .def file gives every macro it uses an empty default, so an includer defines
 * only the one it wants, and undefines them all at its end.
 *
 * calls.def:  HANDLER(name, what)      special knowledge: SF_H_<name> of an enumeration
 *             CALL(nr, name, class, handler, errno, a0, a1, a2, a3, a4, a5, note)
 *             CALL_GAP(first, last, note)   numbers without a call: DENY ENOSYS, as the kernel
 *             SF_CALLS_MAX, SF_CALLS_KERNEL  the highest number, the kernel it is true of
 * ioctl.def, fcntl.def, prctl.def, arch_prctl.def, semctl.def, shmctl.def, msgctl.def:
 *             SUB(command, "NAME", class, errno, arg, note)
 *   The command selects how the *pointer* argument is treated (ioctl, fcntl: a2; prctl,
 *   arch_prctl: a1; semctl: a3; msgctl: a2); the other arguments are numbers. A command
 *   without a row is refused, by number.
 * sockopt.def: SOCKOPT(level, name, "NAME", get_class, get_errno, set_class, set_errno, note)
 *   exceptions only: an option without a row is carried as the rows of calls.def say.
 * entropy.def: ENTROPY(source, how_treated, where, note)
 */
enum sf_handler {
#define HANDLER(name, what) SF_H_##name,
#include "calls.def"
	SF_H_COUNT
};

/* Numbers, by the names of the rows. */
enum {
#define CALL(nr, name, ...) NR_##name = (nr),
#include "calls.def"
};

struct sf_sub {
	uint32_t command;
	uint8_t class;
	int16_t err;
	struct sf_arg arg;
	const char *name;
	const char *note;
};

/* The value of a length argument, as wide as the kernel reads it: the upper half of a
 * register that holds an int is undefined (System V ABI, 3.2.3). */
static inline uint64_t sf_length_value(uint8_t kind, uint64_t value)
{
	if (kind == SF_A_I32)
		return (int32_t)value < 0 ? 0 : (uint64_t)(uint32_t)value;
	return kind == SF_A_U32 ? (uint32_t)value : value;
}

#endif
