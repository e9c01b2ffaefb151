/* wasi:filesystem 0.2 in memory: directories, hard and symbolic links, rename, unlink while open; read and write at positions and by streams (streams.h).
 *
 *   names, links, counts ──► wasi:keyvalue   bucket "fs/inodes": inodes by number; bucket "fs/N": the entries of directory N
 *   bytes                ──► steadfast:fs    file "inode-N"
 *   times                ──► wasi:keyvalue   beside the inodes (times.h)
 *   places in listings   ──► wasi:keyvalue   bucket "fs/listings"
 *   places in streams    ──► wasi:keyvalue   bucket "fs/streams"
 *
 * State: none but open descriptors, listings and streams. What a call changes it changes at others, whose journal answers a repeated call: a rename that
 * a failure interrupts is done once, and wholly. A descriptor is a number and its flags, and comes back from these (filesystem.recover.toml).
 *
 * Invariants
 *  1. What a call asks others for depends on its arguments and on their answers alone, so buckets are opened by each call.
 *  2. An inode goes when it has neither a name nor an open descriptor; its number is used again.
 *  3. No path leads out of the directory that it starts at, whatever links say.
 * See WASI 0.2, wasi:filesystem/types; errors are those of Linux's tmpfs.
 */
#include "paths.h"

#define TYPES "wasi:filesystem/types@0.2.0"
#define PREOPENS "wasi:filesystem/preopens@0.2.0"
#define IDENTITY "steadfast:filesystem/identity@0.1.0"
#define METHOD(name) EXPORT(TYPES "#[method]descriptor." name)

enum { READ = 1, WRITE = 2, MUTATE = 32 };
enum { CREATE = 1, ONLY_DIRECTORY = 2, EXCLUSIVE = 4, TRUNCATE = 8 };
/* The file system takes no more (fs.c, fs.recover.toml). */
enum { SIZE_MAX_BYTES = 1 << 30, READ_MAX_BYTES = 1 << 20 };

/* An open listing. The store has the names as they were when it was opened, each behind its length, and the one that was given last. */
struct listing {
	uint64_t id;
};

IMPORT("[export]" TYPES, "[resource-new]descriptor") int32_t descriptor_new(struct node *rep);
IMPORT("[export]" TYPES, "[resource-new]directory-entry-stream") int32_t listing_new(struct listing *rep);

/* --- Results: a discriminant, and payload or error where the canonical ABI aligns them. */

static union {
	uint8_t bytes[104];
	uint32_t words[26];
	uint64_t longs[13];
} result;

static void *done(int error, uint32_t at)
{
	result.bytes[0] = error != NONE;
	if (error != NONE)
		result.bytes[at] = (uint8_t)error;
	return &result;
}

#include "streams.h"

static int32_t make_node(uint32_t number, uint32_t flags)
{
	struct node *node = need(sizeof *node);
	*node = (struct node){ number, flags };
	return descriptor_new(node);
}

/* One descriptor more, which the store counts. */
static int32_t open_node(uint32_t number, struct inode inode, uint32_t flags)
{
	inode.opens++;
	save(number, inode);
	return make_node(number, flags);
}

static int cut(uint32_t number, uint64_t size)
{
	int32_t file = file_of(number);
	uint8_t done[2] = { 1 };
	if (file < 0)
		return INSUFFICIENT_SPACE;
	file_truncate(file, size, done);
	file_drop(file);
	return done[0] ? INSUFFICIENT_SPACE : NONE;
}

/* The same of a file that was there before. */
static int cut_again(uint32_t number, uint64_t size)
{
	int error = cut(number, size);
	if (error == NONE)
		data_changed(number);
	return error;
}

/* What open-at must find or make. */
static int openable(struct place *place, uint32_t open_flags, uint32_t flags)
{
	if ((open_flags & CREATE) && (open_flags & ONLY_DIRECTORY))
		return INVALID;
	if ((open_flags & CREATE) && place->wants_directory)
		return IS_DIRECTORY;
	if (!place->number) {
		if (!(open_flags & CREATE))
			return NO_ENTRY;
		int error = may_make(place);
		if (error != NONE)
			return error;
		place->number = new_inode(REGULAR, 0);
		place->inode = (struct inode){ REGULAR, 1, 0, 0 };
		set_entry(place->directory, place->name, place->number);
		return cut(place->number, 0);
	}
	if ((open_flags & CREATE) && (open_flags & EXCLUSIVE))
		return EXIST;
	if (place->inode.type == DIRECTORY)
		return (open_flags & (CREATE | TRUNCATE)) || (flags & WRITE) ? IS_DIRECTORY : NONE;
	if ((open_flags & ONLY_DIRECTORY) || place->wants_directory)
		return NOT_DIRECTORY;
	if (place->inode.type == SYMLINK)
		return LOOP;
	return open_flags & TRUNCATE ? cut_again(place->number, 0) : NONE;
}

METHOD("open-at")
void *open_at(struct node *node, uint32_t path_flags, char *path, uint32_t len, uint32_t open_flags, uint32_t flags)
{
	struct place place;
	int fresh = (open_flags & CREATE) && (open_flags & EXCLUSIVE);
	int error = walk(node, (struct text){ path, len }, fresh ? NEVER : by(path_flags), &place);
	if (error == NONE)
		error = openable(&place, open_flags, flags);
	if (error == NONE)
		result.words[1] = (uint32_t)open_node(place.number, place.inode, flags);
	free(len ? path : NULL);
	return done(error, 4);
}

EXPORT(TYPES "#[dtor]descriptor") void close_node(struct node *node)
{
	struct inode inode = load(node->number);
	if (inode.opens)
		inode.opens--;
	settle(node->number, inode);
	free(node);
}

EXPORT(IDENTITY "#of-descriptor") uint64_t of_descriptor(struct node *node)
{
	return (uint64_t)node->number << 8 | node->flags;
}

EXPORT(IDENTITY "#descriptor-again") int32_t descriptor_again(uint64_t identity)
{
	return make_node((uint32_t)(identity >> 8), identity & 0xff);
}

EXPORT(PREOPENS "#get-directories") uint32_t *get_directories(void)
{
	static uint32_t one[3], list[2];
	one[0] = (uint32_t)open_node(ROOT, load(ROOT), READ | MUTATE);
	one[1] = (uint32_t)(uintptr_t)"/";
	one[2] = 1;
	list[0] = (uint32_t)(uintptr_t)one;
	list[1] = 1;
	return list;
}

/* --- Files */

/* Taken, and of no use: all of it is memory. */
METHOD("advise") void *advise(struct node *node, uint64_t offset, uint64_t length, uint32_t advice)
{
	(void)offset, (void)length, (void)advice;
	return done(load(node->number).type == REGULAR ? NONE : BAD_DESCRIPTOR, 1);
}

METHOD("sync-data") void *sync_data(struct node *node)
{
	(void)node;
	return done(NONE, 1);
}

METHOD("sync") void *sync_all(struct node *node)
{
	return sync_data(node);
}

METHOD("get-flags") void *get_flags(struct node *node)
{
	result.bytes[1] = (uint8_t)node->flags;
	return done(NONE, 1);
}

METHOD("get-type") void *get_type(struct node *node)
{
	result.bytes[1] = (uint8_t)load(node->number).type;
	return done(NONE, 1);
}

METHOD("set-size") void *set_size(struct node *node, uint64_t size)
{
	if (!(node->flags & WRITE) || load(node->number).type != REGULAR)
		return done(INVALID, 1);
	return done(size > SIZE_MAX_BYTES ? FILE_TOO_LARGE : cut_again(node->number, size), 1);
}

METHOD("read") void *read_file(struct node *node, uint64_t length, uint64_t offset)
{
	if (load(node->number).type == DIRECTORY)
		return done(IS_DIRECTORY, 4);
	if (!(node->flags & READ))
		return done(BAD_DESCRIPTOR, 4);
	int32_t file = file_of(node->number);
	if (file < 0)
		return done(INSUFFICIENT_SPACE, 4);
	struct list_result found = { 0 };
	file_read(file, offset, length < READ_MAX_BYTES ? (uint32_t)length : READ_MAX_BYTES, &found);
	file_drop(file);
	if (found.err)
		return done(IO, 4);
	result.words[1] = (uint32_t)(uintptr_t)found.list.at;
	result.words[2] = found.list.len;
	result.bytes[12] = length && !found.list.len;
	return done(NONE, 4);
}

EXPORT("cabi_post_" TYPES "#[method]descriptor.read") void read_done(uint32_t *read)
{
	if (!*(uint8_t *)read)
		done_with((struct text){ (const char *)(uintptr_t)read[1], read[2] });
}

METHOD("write") void *write_file(struct node *node, char *bytes, uint32_t len, uint64_t offset)
{
	int error = node->flags & WRITE ? NONE : BAD_DESCRIPTOR;
	if (error == NONE && (offset > SIZE_MAX_BYTES || offset + len > SIZE_MAX_BYTES))
		error = FILE_TOO_LARGE;
	int32_t file = error == NONE ? file_of(node->number) : -1;
	struct long_result written = { .err = 1 };
	if (file >= 0) {
		file_write(file, offset, bytes, len, &written);
		file_drop(file);
	}
	free(len ? bytes : NULL);
	if (error == NONE && written.err)
		error = INSUFFICIENT_SPACE;
	if (error == NONE && len)
		data_changed(node->number);
	result.longs[1] = written.n;
	return done(error, 8);
}

/* --- Streams of a file */

static int streamable(const struct node *node, uint32_t flag)
{
	if (load(node->number).type != REGULAR)
		return IS_DIRECTORY;
	return node->flags & flag ? NONE : BAD_DESCRIPTOR;
}

METHOD("read-via-stream") void *read_via_stream(struct node *node, uint64_t offset)
{
	int error = streamable(node, READ);
	if (error == NONE)
		result.words[1] = (uint32_t)input_new(begin_stream(node->number, offset, 0));
	return done(error, 4);
}

METHOD("write-via-stream") void *write_via_stream(struct node *node, uint64_t offset)
{
	int error = streamable(node, WRITE);
	if (error == NONE)
		result.words[1] = (uint32_t)output_new(begin_stream(node->number, offset, 0));
	return done(error, 4);
}

METHOD("append-via-stream") void *append_via_stream(struct node *node)
{
	int error = streamable(node, WRITE);
	if (error == NONE)
		result.words[1] = (uint32_t)output_new(begin_stream(node->number, 0, 1));
	return done(error, 4);
}

/* --- What is told of an inode */

/* An option<datetime>, at so many times eight bytes. */
static void tell(uint32_t at, struct stamp time)
{
	int some = time.nanoseconds != NEVER_SET;
	result.bytes[8 * at] = (uint8_t)some;
	if (some) {
		result.longs[at + 1] = time.seconds;
		result.words[2 * at + 4] = time.nanoseconds;
	}
}

static void *told(int error, uint32_t number, struct inode inode)
{
	if (error != NONE)
		return done(error, 8);
	memset(&result, 0, sizeof result);
	result.bytes[8] = (uint8_t)inode.type;
	result.longs[2] = inode.links;
	if (inode.type == SYMLINK) {
		struct text target = target_of(number);
		result.longs[3] = target.len;
		done_with(target);
	}
	int32_t file = inode.type == REGULAR ? file_of(number) : -1;
	if (file >= 0) {
		result.longs[3] = file_size(file);
		file_drop(file);
	}
	int32_t bucket = inodes();
	struct changes changes = changes_of(bucket, number);
	tell(4, use_of(bucket, number));
	tell(7, changes.data);
	tell(10, changes.status);
	bucket_drop(bucket);
	return done(NONE, 8);
}

METHOD("stat") void *stat_node(struct node *node)
{
	return told(NONE, node->number, load(node->number));
}

METHOD("stat-at") void *stat_at(struct node *node, uint32_t path_flags, char *path, uint32_t len)
{
	struct place place;
	int error = find(node, (struct text){ path, len }, by(path_flags), &place);
	free(len ? path : NULL);
	return told(error, place.number, place.inode);
}

/* --- Times. A new-timestamp is a kind and a time. */

enum { NO_CHANGE = 0, NOW = 1 };

static int set_time(uint32_t kind, struct stamp given, struct stamp present, struct stamp *time)
{
	if (kind == NO_CHANGE)
		return NONE;
	*time = kind == NOW ? present : given;
	/* As utimensat(2) has it; what is beyond its seconds no file system of Linux has either. */
	return kind != NOW && (given.nanoseconds >= SECOND || given.seconds > INT64_MAX) ? INVALID : NONE;
}

static int set_times(uint32_t number, uint32_t use, struct stamp used, uint32_t change, struct stamp changed)
{
	if (use == NO_CHANGE && change == NO_CHANGE)
		return NONE;
	int32_t bucket = inodes();
	struct changes changes = changes_of(bucket, number);
	struct stamp present = now(), time = no_time;
	int error = set_time(use, used, present, &time);
	if (error == NONE)
		error = set_time(change, changed, present, &changes.data);
	if (error == NONE) {
		changes.status = present;
		set_changes(bucket, number, changes);
		if (use != NO_CHANGE)
			set_use(bucket, number, time);
	}
	bucket_drop(bucket);
	return error;
}

METHOD("set-times")
void *set_times_of(struct node *node, uint32_t use, uint64_t use_s, uint32_t use_ns, uint32_t change, uint64_t change_s, uint32_t change_ns)
{
	struct stamp used = { use_s, use_ns, 0 }, changed = { change_s, change_ns, 0 };
	return done(set_times(node->number, use, used, change, changed), 1);
}

METHOD("set-times-at")
void *set_times_at(struct node *node, uint32_t path_flags, char *path, uint32_t len, uint32_t use, uint64_t use_s, uint32_t use_ns,
		   uint32_t change, uint64_t change_s, uint32_t change_ns)
{
	struct place place;
	struct stamp used = { use_s, use_ns, 0 }, changed = { change_s, change_ns, 0 };
	int error = find(node, (struct text){ path, len }, by(path_flags), &place);
	if (error == NONE)
		error = set_times(place.number, use, used, change, changed);
	free(len ? path : NULL);
	return done(error, 1);
}

METHOD("is-same-object") int32_t is_same_object(struct node *node, struct node *other)
{
	return node->number == other->number;
}

/* A number is used again only when nobody has it open, so it stands for its inode as long as anybody looks. */
static void *hashed(int error, uint32_t number)
{
	result.longs[1] = number;
	result.longs[2] = 0;
	return done(error, 8);
}

METHOD("metadata-hash") void *metadata_hash(struct node *node)
{
	return hashed(NONE, node->number);
}

METHOD("metadata-hash-at") void *metadata_hash_at(struct node *node, uint32_t path_flags, char *path, uint32_t len)
{
	struct place place;
	int error = find(node, (struct text){ path, len }, by(path_flags), &place);
	free(len ? path : NULL);
	return hashed(error, place.number);
}

/* --- Names */

METHOD("create-directory-at") void *create_directory_at(struct node *node, char *path, uint32_t len)
{
	struct place place;
	int error = walk(node, (struct text){ path, len }, NEVER, &place);
	if (error == NONE)
		error = place.number ? EXIST : may_make(&place);
	if (error == NONE)
		set_entry(place.directory, place.name, new_inode(DIRECTORY, place.directory));
	free(len ? path : NULL);
	return done(error, 1);
}

METHOD("remove-directory-at") void *remove_directory_at(struct node *node, char *path, uint32_t len)
{
	struct place place;
	int error = find(node, (struct text){ path, len }, NEVER, &place);
	if (error == NONE && !place.name.len)
		error = len && path[len - 1] == '.' && (len == 1 || path[len - 2] != '.') ? INVALID : NOT_EMPTY;
	if (error == NONE && place.inode.type != DIRECTORY)
		error = NOT_DIRECTORY;
	if (error == NONE && !is_empty(place.number))
		error = NOT_EMPTY;
	if (error == NONE) {
		set_entry(place.directory, place.name, 0);
		unlinked(place.number);
	}
	free(len ? path : NULL);
	return done(error, 1);
}

METHOD("unlink-file-at") void *unlink_file_at(struct node *node, char *path, uint32_t len)
{
	struct place place;
	int error = find(node, (struct text){ path, len }, NEVER, &place);
	if (error == NONE && place.inode.type == DIRECTORY)
		error = IS_DIRECTORY;
	if (error == NONE) {
		set_entry(place.directory, place.name, 0);
		unlinked(place.number);
	}
	free(len ? path : NULL);
	return done(error, 1);
}

METHOD("link-at")
void *link_at(struct node *node, uint32_t path_flags, char *old, uint32_t old_len, struct node *to, char *new, uint32_t new_len)
{
	struct place from, into;
	int error = find(node, (struct text){ old, old_len }, by(path_flags), &from);
	if (error == NONE)
		error = walk(to, (struct text){ new, new_len }, NEVER, &into);
	if (error == NONE && into.number)
		error = EXIST;
	if (error == NONE && into.wants_directory)
		error = NO_ENTRY;
	if (error == NONE && from.inode.type == DIRECTORY)
		error = NOT_PERMITTED;
	if (error == NONE)
		error = may_make(&into);
	if (error == NONE) {
		from.inode.links++;
		save(from.number, from.inode);
		status_changed(from.number);
		set_entry(into.directory, into.name, from.number);
	}
	free(old_len ? old : NULL);
	free(new_len ? new : NULL);
	return done(error, 1);
}

METHOD("symlink-at") void *symlink_at(struct node *node, char *old, uint32_t old_len, char *new, uint32_t new_len)
{
	struct place place;
	int error = !old_len ? NO_ENTRY : *old == '/' ? NOT_PERMITTED : old_len > PATH_MAX_BYTES ? NAME_TOO_LONG : NONE;
	if (error == NONE)
		error = walk(node, (struct text){ new, new_len }, NEVER, &place);
	if (error == NONE && place.number)
		error = EXIST;
	if (error == NONE && place.wants_directory)
		error = NO_ENTRY;
	if (error == NONE)
		error = may_make(&place);
	if (error == NONE) {
		uint32_t number = new_inode(SYMLINK, 0);
		int32_t bucket = inodes();
		set(bucket, label("to-", number), old, old_len);
		bucket_drop(bucket);
		set_entry(place.directory, place.name, number);
	}
	free(old_len ? old : NULL);
	free(new_len ? new : NULL);
	return done(error, 1);
}

METHOD("readlink-at") void *readlink_at(struct node *node, char *path, uint32_t len)
{
	struct place place;
	int error = find(node, (struct text){ path, len }, BY_SLASH, &place);
	if (error == NONE && place.inode.type != SYMLINK)
		error = INVALID;
	if (error == NONE) {
		struct text target = target_of(place.number);
		result.words[1] = (uint32_t)(uintptr_t)target.at;
		result.words[2] = target.len;
	}
	free(len ? path : NULL);
	return done(error, 4);
}

EXPORT("cabi_post_" TYPES "#[method]descriptor.readlink-at") void readlink_done(uint32_t *link)
{
	if (!*(uint8_t *)link)
		done_with((struct text){ (const char *)(uintptr_t)link[1], link[2] });
}

/* Whether a directory is another one, or lies below it. */
static int lies_in(uint32_t directory, uint32_t other)
{
	for (; directory != other; directory = load(directory).parent)
		if (directory == ROOT)
			return 0;
	return 1;
}

static int may_rename(const struct place *from, const struct place *into)
{
	int directory = from->inode.type == DIRECTORY;
	if (!from->name.len || !into->name.len)
		return BUSY;
	if (!from->number)
		return NO_ENTRY;
	if (!directory && (from->wants_directory || into->wants_directory))
		return NOT_DIRECTORY;
	if (directory && lies_in(into->directory, from->number))
		return INVALID;
	if (!into->number)
		return may_make(into);
	if (directory && into->inode.type != DIRECTORY)
		return NOT_DIRECTORY;
	if (!directory && into->inode.type == DIRECTORY)
		return IS_DIRECTORY;
	return directory && into->number != from->number && !is_empty(into->number) ? NOT_EMPTY : NONE;
}

METHOD("rename-at")
void *rename_at(struct node *node, char *old, uint32_t old_len, struct node *to, char *new, uint32_t new_len)
{
	struct place from, into;
	int error = walk(node, (struct text){ old, old_len }, NEVER, &from);
	if (error == NONE)
		error = walk(to, (struct text){ new, new_len }, NEVER, &into);
	if (error == NONE)
		error = may_rename(&from, &into);
	/* Two names of one file: both stay (rename(2)). */
	if (error == NONE && into.number != from.number) {
		set_entry(into.directory, into.name, from.number);
		set_entry(from.directory, from.name, 0);
		if (into.number)
			unlinked(into.number);
		if (from.inode.type == DIRECTORY) {
			from.inode.parent = into.directory;
			save(from.number, from.inode);
		}
		status_changed(from.number);
	}
	free(old_len ? old : NULL);
	free(new_len ? new : NULL);
	return done(error, 1);
}

/* --- Listings: in the order of names, so that a place in one is the name that was given last. */

static int32_t make_listing(uint64_t id)
{
	struct listing *listing = need(sizeof *listing);
	listing->id = id;
	return listing_new(listing);
}

/* The names of a directory, in memory that done_with() frees. */
static struct text names_in(uint32_t directory)
{
	uint32_t count, len = 0;
	int32_t bucket = opened(label("fs/", directory));
	struct text *names = keys_of(bucket, &count);
	bucket_drop(bucket);
	for (uint32_t i = 0; i < count; i++)
		len += 1 + names[i].len;
	char *at = len ? need(len) : NULL;
	struct text all = { at, len };
	for (uint32_t i = 0; i < count; i++) {
		*at++ = (char)names[i].len;
		memcpy(at, names[i].at, names[i].len);
		at += names[i].len;
	}
	free_keys(names, count);
	return all;
}

METHOD("read-directory") void *read_directory(struct node *node)
{
	if (load(node->number).type != DIRECTORY)
		return done(NOT_DIRECTORY, 4);
	struct text names = names_in(node->number);
	/* The store takes no more in one value. */
	if (names.len > READ_MAX_BYTES) {
		done_with(names);
		return done(INSUFFICIENT_SPACE, 4);
	}
	int32_t bucket = listings();
	uint64_t id = next_of(bucket);
	set(bucket, label("", id), &node->number, sizeof node->number);
	set(bucket, label("names-", id), names.at, names.len);
	bucket_drop(bucket);
	done_with(names);
	result.words[1] = (uint32_t)make_listing(id);
	return done(NONE, 4);
}

EXPORT(TYPES "#[dtor]directory-entry-stream") void close_listing(struct listing *listing)
{
	int32_t bucket = listings();
	take_away(bucket, label("", listing->id));
	take_away(bucket, label("names-", listing->id));
	bucket_drop(bucket);
	free(listing);
}

EXPORT(IDENTITY "#of-listing") uint64_t of_listing(struct listing *listing)
{
	return listing->id;
}

EXPORT(IDENTITY "#listing-again") int32_t listing_again(uint64_t id)
{
	return make_listing(id);
}

static int order(struct text a, struct text b)
{
	int by = memcmp(a.at, b.at, a.len < b.len ? a.len : b.len);
	return by ? by : (a.len > b.len) - (a.len < b.len);
}

EXPORT(TYPES "#[method]directory-entry-stream.read-directory-entry") void *read_directory_entry(struct listing *listing)
{
	struct text at;
	uint32_t directory, number = 0;
	int32_t bucket = listings();
	if (!get(bucket, label("", listing->id), &at) || at.len < sizeof directory)
		__builtin_trap();
	/* The name that is given lies in there, so the next call frees it. */
	static struct text names;
	done_with(names);
	names = (struct text){ 0 };
	if (!get(bucket, label("names-", listing->id), &names))
		__builtin_trap();
	memcpy(&directory, at.at, sizeof directory);
	struct text last = { at.at + sizeof directory, at.len - sizeof directory }, name = { 0 };
	for (uint32_t i = 0; i < names.len && !number; i += name.len) {
		name.len = (uint8_t)names.at[i++];
		name.at = names.at + i;
		/* A name that has gone meanwhile is left out. */
		if (order(name, last) > 0)
			number = entry(directory, name);
	}
	done_with(at);
	memset(&result, 0, sizeof result);
	if (number) {
		char *now = need(sizeof directory + name.len);
		memcpy(now, &directory, sizeof directory);
		memcpy(now + sizeof directory, name.at, name.len);
		set(bucket, label("", listing->id), now, sizeof directory + name.len);
		free(now);
		result.bytes[4] = 1;
		result.bytes[8] = (uint8_t)load(number).type;
		result.words[3] = (uint32_t)(uintptr_t)name.at;
		result.words[4] = name.len;
	}
	bucket_drop(bucket);
	return done(NONE, 4);
}
