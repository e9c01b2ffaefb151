/* Times of inodes: in the store beside them, so that they come back with its keys. The host tells the time, once for each question of a call.
 *
 *   key "a-N": when the data of inode N were used; key "m-N": when they were changed, and when anything of the inode was
 *
 * Reading does not count as a use, as on a file system that is mounted with noatime: each read would write. The root has no times until it changes.
 */
#ifndef STEADFAST_TIMES_H
#define STEADFAST_TIMES_H

#include "others.h"

#define CLOCK "wasi:clocks/wall-clock@0.2.0"

/* As wasi:clocks has it; the rest is zero, so that two bodies store the same. */
struct stamp {
	uint64_t seconds;
	uint32_t nanoseconds;
	uint32_t rest;
};

struct changes {
	struct stamp data, status;
};

enum { SECOND = 1000000000 };
/* There is none. */
enum { NEVER_SET = 0xffffffff };

IMPORT(CLOCK, "now") void clock_now(struct stamp *now);

static struct stamp now(void)
{
	struct stamp now = { 0 };
	clock_now(&now);
	now.rest = 0;
	return now;
}

static int32_t inodes(void);
static struct text label(const char *prefix, int64_t number);
static int get_fixed(int32_t bucket, struct text key, void *out, uint32_t size);
static void set(int32_t bucket, struct text key, const void *value, uint32_t size);
static void take_away(int32_t bucket, struct text key);

static const struct stamp no_time = { 0, NEVER_SET, 0 };

static struct changes changes_of(int32_t bucket, uint32_t number)
{
	struct changes changes = { no_time, no_time };
	get_fixed(bucket, label("m-", number), &changes, sizeof changes);
	return changes;
}

static struct stamp use_of(int32_t bucket, uint32_t number)
{
	struct stamp used = no_time;
	get_fixed(bucket, label("a-", number), &used, sizeof used);
	return used;
}

static void set_changes(int32_t bucket, uint32_t number, struct changes changes)
{
	set(bucket, label("m-", number), &changes, sizeof changes);
}

static void set_use(int32_t bucket, uint32_t number, struct stamp used)
{
	set(bucket, label("a-", number), &used, sizeof used);
}

/* A new inode. */
static void born(int32_t bucket, uint32_t number)
{
	struct stamp at = now();
	set_use(bucket, number, at);
	set_changes(bucket, number, (struct changes){ at, at });
}

static void gone(int32_t bucket, uint32_t number)
{
	take_away(bucket, label("a-", number));
	take_away(bucket, label("m-", number));
}

/* Its data have changed: bytes, or the entries of a directory. */
static void data_changed(uint32_t number)
{
	struct stamp at = now();
	int32_t bucket = inodes();
	set_changes(bucket, number, (struct changes){ at, at });
	bucket_drop(bucket);
}

/* Its names or its times have. */
static void status_changed(uint32_t number)
{
	int32_t bucket = inodes();
	struct changes changes = changes_of(bucket, number);
	changes.status = now();
	set_changes(bucket, number, changes);
	bucket_drop(bucket);
}

#endif
