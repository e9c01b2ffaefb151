/* Odd: a child, told by lines, takes what no site that joins can be given, and gives it up again. It says each line when it has done so. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096 };

static void *memory;
static int segment, nameless, to_orphan[2];

/* Its own child makes it, and ends; it ends with the pipe. */
static void orphan(void)
{
	pipe(to_orphan);
	if (fork() == 0) {
		if (fork() == 0) {
			char byte;
			close(to_orphan[1]);
			_exit((int)read(to_orphan[0], &byte, 1));
		}
		_exit(0);
	}
	wait(0);
	close(to_orphan[0]);
}

static void does(const char *line)
{
	if (!strcmp(line, "segment")) {
		segment = shmget(IPC_PRIVATE, BYTES, 0600);
		memory = shmat(segment, 0, 0);
	} else if (!strcmp(line, "no segment")) {
		shmdt(memory);
		shmctl(segment, IPC_RMID, 0);
	} else if (!strcmp(line, "name")) {
		const int fd = shm_open("/odd", O_RDWR | O_CREAT | O_EXCL, 0600);
		ftruncate(fd, BYTES);
		memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		close(fd);
	} else if (!strcmp(line, "no name")) {
		munmap(memory, BYTES);
		shm_unlink("/odd");
	} else if (!strcmp(line, "file")) {
		nameless = open("gone", O_RDWR | O_CREAT, 0600);
		unlink("gone");
	} else if (!strcmp(line, "no file")) {
		close(nameless);
	} else if (!strcmp(line, "orphan")) {
		orphan();
	} else if (!strcmp(line, "no orphan")) {
		close(to_orphan[1]);
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
