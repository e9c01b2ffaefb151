/* A library that takes up more addresses than lie between a library and the injector's code (built twice: -DLIBRARY, and without). */
#ifdef LIBRARY
char large[600ul << 20];
int said(void)
{
	return large[5] + 7;
}
#else
#include <stdio.h>
extern int said(void);
int main(void)
{
	printf("%d\n", said());
	return 0;
}
#endif
