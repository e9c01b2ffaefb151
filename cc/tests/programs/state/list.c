#include <steadfast/sei.h>
#include <stdarg.h>
#include <stdio.h>

SF_DUP char s[8];

static int f(char *to, const char *how, ...)
{
	va_list l;
	va_start(l, how);
	int n = vsnprintf(to, 8, how, l);
	va_end(l);
	return n;
}

SF_LOCAL_HANDLER int handle(void)
{
	char b[8];
	int n;
	return f(b, "%s%n", s, &n);
}

int main(void)
{
	return handle();
}
