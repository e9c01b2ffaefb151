#include <steadfast/sei.h>
#include <string.h>

SF_DUP char *rest;

SF_LOCAL_HANDLER int handle(void)
{
	return !rest;
}

int main(void)
{
	char text[] = "a b";
	rest = text;
	strsep(&rest, " ");
	return handle();
}
