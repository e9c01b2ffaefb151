/* Odd: a child, told by lines, takes what no site that joins can be given, and gives it up again. It says each line when it has done so. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int nameless, watches, set;

static void does(const char *line)
{
	if (!strcmp(line, "watch")) { /* a name that is on this host alone, and it is polled */
		struct epoll_event event = { EPOLLIN, { 0 } };
		mkdir("/dev/shm/odd", 0700);
		watches = inotify_init();
		inotify_add_watch(watches, "/dev/shm/odd", IN_CREATE);
		set = epoll_create1(0);
		epoll_ctl(set, EPOLL_CTL_ADD, watches, &event);
	} else if (!strcmp(line, "no watch")) {
		close(set);
		close(watches);
		rmdir("/dev/shm/odd");
	} else if (!strcmp(line, "file")) {
		nameless = open("gone", O_RDWR | O_CREAT, 0600);
		unlink("gone");
	} else if (!strcmp(line, "no file")) {
		close(nameless);
	} else if (!strcmp(line, "zombie")) {
		if (fork() == 0)
			_exit(0);
	} else if (!strcmp(line, "no zombie")) {
		wait(0);
	}
}

int main(void)
{
	if (fork() == 0) {
		char line[80];
		setlinebuf(stdout);
		while (fgets(line, sizeof line, stdin)) {
			line[strcspn(line, "\n")] = 0;
			does(line);
			puts(line);
		}
		fflush(stdout);
		_exit(0);
	}
	while (wait(0) > 0)
		;
	return 0;
}
