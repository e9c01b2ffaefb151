/* Connects to each socket named on its command line; ends with 1 if one answers. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

int main(int argc, char **argv)
{
	int reached = 0;
	for (int i = 1; i < argc; i++) {
		struct sockaddr_un to = { .sun_family = AF_UNIX };
		strncpy(to.sun_path, argv[i], sizeof(to.sun_path) - 1);
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&to, sizeof(to)) == 0)
			reached = 1;
	}
	puts(reached ? "reached" : "closed");
	return reached;
}
