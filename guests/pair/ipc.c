/* Ipc: four processes that know each other by semaphores and queues of System V. For each line that comes: what one of them has answered by
 * a queue, what was in the queue since the line before, how often another one has counted; for `last`, what happens to a semaphore whose
 * holder ends, and to all of it when it is given up. For `wait`, how long one waits in vain; for `signal`, what ends a wait. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KEY = 0x5f3759e0, ASK = 0, ANSWER, LOCK, COUNT, NEVER, ALL };
enum { TO_CHILD = 1, TO_PARENT, PENDING };

static int set, queue;
static struct message {
	long type;
	char text[80];
} message;

static int change(int which, int by, int flags)
{
	struct sembuf op = { (unsigned short)which, (short)by, (short)flags };
	return semop(set, &op, 1);
}

static void say(long type, const char *text)
{
	message.type = type;
	strcpy(message.text, text);
	msgsnd(queue, &message, strlen(text) + 1, 0);
}

static const char *hear(long type)
{
	message.text[0] = 0;
	return msgrcv(queue, &message, sizeof message.text, type, 0) < 0 ? strerror(errno) : message.text;
}

static void echoes(void)
{
	char text[100];
	while (strcmp(hear(TO_CHILD), "last")) {
		snprintf(text, sizeof text, "%s!", message.text);
		say(TO_PARENT, text);
	}
	say(TO_PARENT, "ends");
	_exit(0);
}

static void counts(void)
{
	while (change(ASK, -1, 0) == 0) {
		change(COUNT, 1, 0);
		change(ANSWER, 1, 0);
	}
	_exit(0);
}

/* Gives it back by ending. */
static void holds(void)
{
	change(LOCK, -1, SEM_UNDO);
	change(ANSWER, 1, 0);
	hear(TO_CHILD + 10);
	_exit(0);
}

static void nothing(int signal)
{
	(void)signal;
}

static void waits(void)
{
	struct sembuf op = { NEVER, -1, 0 };
	struct timespec limit = { 0, 200 * 1000 * 1000 }, from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	const int r = semtimedop(set, &op, 1, &limit);
	const int why = errno;
	clock_gettime(CLOCK_MONOTONIC, &to);
	const long ms = (to.tv_sec - from.tv_sec) * 1000 + (to.tv_nsec - from.tv_nsec) / 1000000;
	printf("waited %d %d %s\n", r, why == EAGAIN, ms >= 199 && ms < 5000 ? "so long" : "otherwise");
}

static void is_signalled(void)
{
	const struct sigaction action = { .sa_handler = nothing, .sa_flags = SA_RESTART };
	sigaction(SIGALRM, &action, 0);
	alarm(1);
	const int r = change(NEVER, -1, 0), ended = errno == EINTR;
	alarm(1);
	const int q = (int)msgrcv(queue, &message, sizeof message.text, 77, 0);
	printf("signalled %d %d %d %d\n", r, ended, q, errno == EINTR);
}

static void last(void)
{
	int busy = change(LOCK, -1, IPC_NOWAIT) < 0 && errno == EAGAIN;
	say(TO_CHILD + 10, "go");
	const int mine = change(LOCK, -1, 0);
	const int same = semget(KEY, 0, 0) == set && msgget(KEY, 0) == queue && semget(KEY, ALL, IPC_CREAT | IPC_EXCL | 0600) < 0;
	say(TO_CHILD, "last");
	hear(TO_PARENT);
	struct msqid_ds about = { 0 };
	msgctl(queue, IPC_STAT, &about);
	const int left = semctl(set, NEVER, GETVAL), pid = semctl(set, LOCK, GETPID) == getpid();
	const int gone = semctl(set, 0, IPC_RMID) | msgctl(queue, IPC_RMID, 0);
	printf("busy %d mine %d same %d bytes %d never %d pid %d gone %d%d\n", busy, mine, same, (int)about.msg_qbytes, left, pid, gone,
	       semget(KEY, 0, 0) < 0 && errno == ENOENT);
}

int main(void)
{
	char line[80];
	int n = 0;
	setlinebuf(stdout);
	set = semget(KEY, ALL, IPC_CREAT | 0600);
	queue = msgget(KEY, IPC_CREAT | 0600);
	semctl(set, LOCK, SETVAL, 1);
	say(PENDING, "nothing");
	void (*const child[])(void) = { echoes, counts, holds };
	for (int i = 0; i < 3; i++)
		if (fork() == 0)
			child[i]();
	change(ANSWER, -1, 0); /* the third one has the lock */
	while (fgets(line, sizeof line, stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line, "last")) {
			last();
			continue;
		}
		if (!strcmp(line, "wait")) {
			waits();
			continue;
		}
		if (!strcmp(line, "signal")) {
			is_signalled();
			continue;
		}
		char answered[80], before[80];
		say(TO_CHILD, line);
		change(ASK, 1, 0);
		strcpy(answered, hear(TO_PARENT));
		change(ANSWER, -1, 0);
		strcpy(before, hear(PENDING));
		say(PENDING, line);
		printf("%d %s %s counted %d\n", ++n, answered, before, semctl(set, COUNT, GETVAL));
	}
	while (wait(0) > 0)
		;
	return 0;
}
