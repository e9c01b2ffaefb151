/* Keys: three processes, one of them an orphan, with memory that they know by keys, by numbers and by names. For each line that comes, how
 * often the other two have counted there; for `last`, also what all of it is known by, before it is given up. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KEY = 0x5f3759df, BYTES = 8192, DEEP = 5000, KEYED = 0, REMOVED, MAPPED, GONE, ALL };

static int *in[ALL], id[ALL], later, ask[2][2], answer[2][2];

static int *segment(int *number, int key)
{
	*number = shmget(key, BYTES, IPC_CREAT | IPC_EXCL | 0600);
	return (int *)((char *)shmat(*number, 0, 0) + DEEP);
}

static int *file(const char *name)
{
	const int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0640);
	ftruncate(fd, BYTES - 100);
	char *at = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return (int *)(at + DEEP);
}

static void count(int which)
{
	char byte;
	while (read(ask[which][0], &byte, 1) == 1 && byte != '.') {
		for (int i = 0; i < ALL; i++)
			++*in[i];
		write(answer[which][1], "!", 1);
	}
	_exit(0);
}

static void make(void)
{
	in[KEYED] = segment(&id[KEYED], KEY);
	in[REMOVED] = segment(&id[REMOVED], IPC_PRIVATE);
	shmctl(id[REMOVED], IPC_RMID, 0);
	later = shmget(IPC_PRIVATE, BYTES, 0600);
	in[MAPPED] = file("/keys");
	in[GONE] = file("/keys-gone");
	shm_unlink("/keys-gone");
	const int closed = shm_open("/keys-closed", O_RDWR | O_CREAT | O_EXCL, 0600);
	write(closed, "as it was", 10);
	close(closed);
}

/* Whether a child of this process finds what it has counted. */
static int child_finds(int wanted)
{
	int status;
	const int pid = fork();
	if (pid == 0)
		_exit(*in[KEYED] == wanted && *in[MAPPED] == wanted);
	waitpid(pid, &status, 0);
	return WEXITSTATUS(status);
}

static void last(int counted)
{
	struct shmid_ds about = { 0 }, removed = { 0 };
	struct stat st = { 0 };
	const int known = shmget(KEY, 0, 0) == id[KEYED] && shmctl(id[KEYED], IPC_STAT, &about) == 0;
	shmctl(id[REMOVED], IPC_STAT, &removed);
	const int *never = shmat(later, 0, 0);
	const int new = shmget(IPC_PRIVATE, BYTES, 0600);
	int fd = shm_open("/keys-closed", O_RDWR, 0);
	char *closed = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	fd = shm_open("/keys", O_RDWR, 0);
	fstat(fd, &st);
	close(fd);
	printf("known %d by %d removed %d never %d new %d %s, %d bytes, rights %o, child %d", known, (int)about.shm_nattch,
	       (int)removed.shm_segsz, *never, new != later && new != id[KEYED] && new != id[REMOVED], closed, (int)st.st_size,
	       (unsigned)st.st_mode & 0777u, child_finds(counted));
	const int gone = shmctl(id[KEYED], IPC_RMID, 0) | shmctl(later, IPC_RMID, 0) | shmctl(new, IPC_RMID, 0) | shm_unlink("/keys") |
			 shm_unlink("/keys-closed");
	printf(" gone %d%d%d\n", gone, shmget(KEY, 0, 0) < 0 && errno == ENOENT, shm_open("/keys", O_RDWR, 0) < 0 && errno == ENOENT);
}

int main(void)
{
	char line[80], byte;
	setlinebuf(stdout);
	make();
	for (int i = 0; i < 2; i++) {
		pipe2(ask[i], 0);
		pipe2(answer[i], 0);
	}
	if (fork() == 0)
		count(0);
	const int middle = fork();
	if (middle == 0) {
		if (fork() == 0)
			count(1);
		_exit(0);
	}
	waitpid(middle, 0, 0);
	while (fgets(line, sizeof line, stdin)) {
		for (int i = 0; i < 2; i++) {
			write(ask[i][1], "?", 1);
			read(answer[i][0], &byte, 1);
		}
		if (!strcmp(line, "last\n"))
			last(*in[KEYED]);
		else
			printf("%d %d %d %d\n", *in[KEYED], *in[REMOVED], *in[MAPPED], *in[GONE]);
	}
	for (int i = 0; i < 2; i++)
		write(ask[i][1], ".", 1);
	while (wait(0) > 0)
		;
	return 0;
}
