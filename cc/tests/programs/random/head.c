#include <steadfast/sei.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct s { unsigned char a; unsigned b; unsigned long c; unsigned short d; double e; };
unsigned char u8[256]; unsigned short u16[128]; unsigned u32[64]; unsigned long u64[32]; double f64[16];
struct s st[8]; void *blocks[8]; unsigned long in, calls;
