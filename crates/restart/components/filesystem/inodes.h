/* Inodes and the entries of directories, in the key-value store; where the bytes of a file are.
 *
 * A store that refuses a bucket or a key of ours has none of it, and nothing here could go on: the component traps, and its caller is told.
 */
#ifndef STEADFAST_INODES_H
#define STEADFAST_INODES_H

#include "times.h"

enum { DIRECTORY = 3, SYMLINK = 5, REGULAR = 6 };
enum { ROOT = 1 };

/* An inode as the store has it. */
struct inode {
	uint32_t type, links, opens;
	/* Of a directory; of a number that is free: the next free one. */
	uint32_t parent;
};

static void *need(size_t size)
{
	void *at = calloc(1, size);
	if (!at)
		__builtin_trap();
	return at;
}

/* --- The store */

/* "fs/N", or what stands for it. Valid until the next one. */
static struct text label(const char *prefix, int64_t number)
{
	static char room[32];
	uint32_t len = strlen(prefix);
	struct text digits = decimal(number);
	memcpy(room, prefix, len);
	memcpy(room + len, digits.at, digits.len);
	return (struct text){ room, len + digits.len };
}

static int32_t opened(struct text name)
{
	struct word_result bucket = { 0 };
	store_open(name.at, name.len, &bucket);
	if (bucket.err)
		__builtin_trap();
	return (int32_t)bucket.word;
}

static int32_t inodes(void)
{
	return opened((struct text){ "fs/inodes", 9 });
}

static int32_t listings(void)
{
	return opened((struct text){ "fs/listings", 11 });
}

/* The value of a key in memory that the caller frees with done_with(); 0 where there is none. */
static int get(int32_t bucket, struct text key, struct text *value)
{
	struct option_result found = { 0 };
	bucket_get(bucket, key.at, key.len, &found);
	if (found.err)
		__builtin_trap();
	*value = found.some ? found.list : (struct text){ 0 };
	return found.some;
}

static int get_fixed(int32_t bucket, struct text key, void *out, uint32_t size)
{
	struct text value;
	int found = get(bucket, key, &value) && value.len == size;
	if (found)
		memcpy(out, value.at, size);
	done_with(value);
	return found;
}

static void set(int32_t bucket, struct text key, const void *value, uint32_t size)
{
	struct word_result done = { 0 };
	bucket_set(bucket, key.at, key.len, value, size, &done);
	if (done.err)
		__builtin_trap();
}

static void take_away(int32_t bucket, struct text key)
{
	struct word_result done = { 0 };
	bucket_delete(bucket, key.at, key.len, &done);
	if (done.err)
		__builtin_trap();
}

static int64_t next_of(int32_t bucket)
{
	struct long_result next = { 0 };
	increment(bucket, "next", 4, 1, &next);
	if (next.err)
		__builtin_trap();
	return next.n;
}

/* All keys of a bucket, sorted. */
static struct text *keys_of(int32_t bucket, uint32_t *count)
{
	struct text *all = NULL;
	struct keys_result page = { 0 };
	*count = 0;
	do {
		struct text from = page.cursor;
		int32_t more = page.more;
		page = (struct keys_result){ 0 };
		bucket_list_keys(bucket, more, from.at, from.len, &page);
		done_with(from);
		if (page.err || !page.count)
			break;
		all = realloc(all, (*count + page.count) * sizeof *all);
		if (!all)
			__builtin_trap();
		memcpy(all + *count, page.keys, page.count * sizeof *all);
		*count += page.count;
		free(page.keys);
	} while (page.more);
	return all;
}

static void free_keys(struct text *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		done_with(keys[i]);
	free(keys);
}

/* --- Inodes and entries */

static struct inode load(uint32_t number)
{
	/* The root is there from the start, and for good. */
	struct inode inode = { DIRECTORY, 1, 0, ROOT };
	int32_t bucket = inodes();
	if (!get_fixed(bucket, label("", number), &inode, sizeof inode) && number != ROOT)
		__builtin_trap();
	bucket_drop(bucket);
	return inode;
}

static void save(uint32_t number, struct inode inode)
{
	int32_t bucket = inodes();
	set(bucket, label("", number), &inode, sizeof inode);
	bucket_drop(bucket);
}

static const struct text free_key = { "free", 4 };

/* A number that nobody has: the one that was given back last, or a new one behind the root's. */
static uint32_t new_inode(uint32_t type, uint32_t parent)
{
	int32_t bucket = inodes();
	uint32_t number = 0;
	struct inode inode = { 0 };
	if (get_fixed(bucket, free_key, &number, sizeof number) && number) {
		if (!get_fixed(bucket, label("", number), &inode, sizeof inode))
			__builtin_trap();
		set(bucket, free_key, &inode.parent, sizeof inode.parent);
	} else {
		number = ROOT + (uint32_t)next_of(bucket);
	}
	inode = (struct inode){ type, 1, 0, parent };
	set(bucket, label("", number), &inode, sizeof inode);
	born(bucket, number);
	bucket_drop(bucket);
	return number;
}

/* Keeps an inode, or gives up one that nobody can reach any more. */
static void settle(uint32_t number, struct inode inode)
{
	if (inode.links || inode.opens) {
		save(number, inode);
		return;
	}
	if (inode.type == REGULAR) {
		uint8_t gone[2];
		struct text name = label("inode-", number);
		file_remove(name.at, name.len, gone);
	}
	int32_t bucket = inodes();
	if (inode.type == SYMLINK)
		take_away(bucket, label("to-", number));
	gone(bucket, number);
	inode = (struct inode){ 0 };
	get_fixed(bucket, free_key, &inode.parent, sizeof inode.parent);
	set(bucket, label("", number), &inode, sizeof inode);
	set(bucket, free_key, &number, sizeof number);
	bucket_drop(bucket);
}

/* What a symbolic link says, in memory that done_with() frees. */
static struct text target_of(uint32_t number)
{
	struct text target;
	int32_t bucket = inodes();
	if (!get(bucket, label("to-", number), &target))
		__builtin_trap();
	bucket_drop(bucket);
	return target;
}

static void unlinked(uint32_t number)
{
	struct inode inode = load(number);
	inode.links--;
	if (inode.links || inode.opens)
		status_changed(number);
	settle(number, inode);
}

static uint32_t entry(uint32_t directory, struct text name)
{
	int32_t bucket = opened(label("fs/", directory));
	uint32_t number = 0;
	get_fixed(bucket, name, &number, sizeof number);
	bucket_drop(bucket);
	return number;
}

static void set_entry(uint32_t directory, struct text name, uint32_t number)
{
	int32_t bucket = opened(label("fs/", directory));
	if (number)
		set(bucket, name, &number, sizeof number);
	else
		take_away(bucket, name);
	bucket_drop(bucket);
	data_changed(directory);
}

static int is_empty(uint32_t directory)
{
	int32_t bucket = opened(label("fs/", directory));
	uint32_t count;
	struct text *names = keys_of(bucket, &count);
	free_keys(names, count);
	bucket_drop(bucket);
	return count == 0;
}

/* The bytes of an inode. */
static int32_t file_of(uint32_t number)
{
	struct word_result file = { 0 };
	struct text name = label("inode-", number);
	file_open(name.at, name.len, 1, &file);
	return file.err ? -1 : (int32_t)file.word;
}

#endif
