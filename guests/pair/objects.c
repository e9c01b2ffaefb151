/* A memory object (memfd_create) that is written, mapped and shared with a child. Each line asks, and each has an answer. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE 8192
static int memory, to_child[2], from_child[2];
static char *shown = MAP_FAILED;

/* It stores what it is told where its parent sees it. */
static void child(void)
{
	char line[64];
	ssize_t n;
	while ((n = read(to_child[0], line, sizeof line - 1)) > 0) {
		line[n] = 0;
		if (!strcmp(line, "end"))
			_exit(7);
		strcpy(shown + 4096, line);
		if (write(from_child[1], "!", 1) != 1)
			_exit(1);
	}
	_exit(2);
}

static void begins(void)
{
	shown = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
	if (shown == MAP_FAILED || pipe(to_child) || pipe(from_child)) {
		puts("begin failed");
		return;
	}
	if (fork() == 0)
		child();
	puts("begin");
}

static void ends(void)
{
	int how = 0;
	if (write(to_child[1], "end", 3) != 3 || wait(&how) < 0)
		puts("end failed");
	else
		printf("end %d\n", WEXITSTATUS(how));
}

int main(void)
{
	char line[64], byte;
	setvbuf(stdout, NULL, _IOLBF, 0);
	memory = memfd_create("object", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (memory < 0 || ftruncate(memory, SIZE) || fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL))
		return 1;
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "write ", 6)) {
			printf("wrote %zd\n", pwrite(memory, line + 6, strlen(line + 6) + 1, 0));
		} else if (!strcmp(line, "read")) {
			char bytes[64] = "";
			printf("read %zd", pread(memory, bytes, 60, 0));
			printf(" %s %d\n", bytes, fcntl(memory, F_GET_SEALS));
		} else if (!strcmp(line, "begin")) {
			begins();
		} else if (!strncmp(line, "store ", 6)) {
			if (write(to_child[1], line + 6, strlen(line + 6)) > 0 && read(from_child[0], &byte, 1) == 1)
				printf("stored %s\n", shown + 4096);
		} else if (!strcmp(line, "shown")) {
			printf("shown %s %s\n", shown, shown + 4096);
		} else if (!strcmp(line, "end")) {
			ends();
		}
	}
	return 0;
}
