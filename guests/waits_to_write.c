/* The same line over and over, from memory that has a name: most of the time it waits to write the next one. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char line[64];

int main(int argc, char **argv)
{
	memset(line, 'a', sizeof line - 1);
	line[sizeof line - 1] = '\n';
	for (int i = argc > 1 ? atoi(argv[1]) : 1; i > 0; i--)
		if (write(1, line, sizeof line) != sizeof line)
			return 1;
	return 0;
}
