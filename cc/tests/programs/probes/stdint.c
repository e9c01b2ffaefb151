#include <stdint.h>
int main(void) { return sizeof(int64_t) != 8; }
