/* A component that calls others: locks of the lock component, and the console.
 *
 * State: sessions, each with a lock that it holds.
 */
#include "component.h"

#define MAIN "test:client/main@0.1.0"
#define LOCKS "steadfast:lock/locks@0.1.0"
#define CONSOLE "steadfast:host/console@0.1.0"

IMPORT(LOCKS, "[constructor]lock") int32_t lock_new(void);
IMPORT(LOCKS, "[method]lock.take") int32_t lock_take(int32_t lock, uint32_t owner);
IMPORT(LOCKS, "[method]lock.release") void lock_release(int32_t lock, uint32_t owner, uint8_t *result);
IMPORT(LOCKS, "[method]lock.holder") void lock_holder(int32_t lock, uint32_t *result);
IMPORT(LOCKS, "[resource-drop]lock") void lock_drop(int32_t lock);
IMPORT(CONSOLE, "print") void print(const char *text, size_t length);
IMPORT(CONSOLE, "print-error") void print_error(const char *text, size_t length);

struct session {
	int32_t lock;
	/* Taken by more, if it was. */
	int32_t other;
	int32_t has_other;
};

IMPORT("[export]" MAIN, "[resource-new]session") int32_t session_new(struct session *rep);

/* A test flips this word in one body. */
volatile uint32_t owner = 0x5ca1ab1e;

static void say(const char *text)
{
	print(text, strlen(text));
}

EXPORT(MAIN "#[constructor]session") int32_t session_constructor(uint32_t of)
{
	struct session *session = calloc(1, sizeof *session);
	if (!session)
		__builtin_trap();
	session->lock = lock_new();
	if (!lock_take(session->lock, of))
		__builtin_trap();
	return session_new(session);
}

EXPORT(MAIN "#[dtor]session") void session_destructor(struct session *session)
{
	lock_drop(session->lock);
	if (session->has_other)
		lock_drop(session->other);
	free(session);
}

EXPORT(MAIN "#[method]session.holder") uint32_t *session_holder(struct session *session)
{
	static uint32_t result[2];
	lock_holder(session->lock, result);
	return result;
}

EXPORT(MAIN "#[method]session.more") int32_t session_more(struct session *session, uint32_t of)
{
	session->other = lock_new();
	session->has_other = 1;
	return lock_take(session->other, of);
}

EXPORT(MAIN "#work") int32_t work(void)
{
	static uint8_t released[2];
	say("at work");
	int32_t lock = lock_new();
	int32_t taken = lock_take(lock, owner);
	lock_release(lock, owner, released);
	lock_drop(lock);
	return taken && !released[0];
}

EXPORT(MAIN "#crash") int32_t crash(void)
{
	say("about to crash");
	print_error("no way out", strlen("no way out"));
	int32_t lock = lock_new();
	lock_take(lock, owner);
	__builtin_trap();
}

EXPORT(MAIN "#talk") void talk(uint32_t lines)
{
	for (uint32_t n = 0; n < lines; n++)
		say("a line");
}

EXPORT(MAIN "#spin") void spin(void)
{
	lock_new();
	for (volatile int n = 0;; n++)
		;
}

/* result: 0 is ok. */
EXPORT(MAIN "#run") int32_t run(void)
{
	for (int n = 0; n < 3; n++)
		if (!work())
			return 1;
	say("done");
	return 0;
}
