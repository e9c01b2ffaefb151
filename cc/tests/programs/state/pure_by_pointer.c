#include <steadfast/sei.h>
#include <string.h>

SF_DUP char s[8];
int (*volatile compare)(const char *, const char *) = strcmp;

SF_LOCAL_HANDLER int handle(void)
{
	int (*c)(const char *, const char *) = compare;
	return c(s, "x");
}

int main(void)
{
	return handle();
}
