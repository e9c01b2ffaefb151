/* struct stat: what stat(2) and fstat(2) of x86-64 fill in. */
#ifndef SF_STAT_H
#define SF_STAT_H

#include "ground/types.h"

struct stat {
	u64 dev, ino, nlink;
	u32 mode, uid, gid, pad;
	u64 rdev;
	s64 size;
	u64 rest[11];
};
_Static_assert(sizeof(struct stat) == 144, "the kernel's asm/stat.h");

#endif
