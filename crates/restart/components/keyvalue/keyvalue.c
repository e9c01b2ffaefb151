/* wasi:keyvalue 0.2.0-draft2 in memory: store, atomics and batch.
 *
 * State: buckets with their keys, both sorted in arrays. Recovery gives a bucket back by "open" and a key by "set" (keyvalue.recover.toml), so nothing
 * here knows of it. A list of keys is sorted: the order in which they come back is not the order in which they were set.
 * A compare-and-swap operation is the value that it saw, which is what it comes back by: a version's number would not be the same after a reset.
 *
 * Invariant: a bucket stays where it is as long as the component runs; handles point to it.
 * A batch that is refused has changed nothing: room for all of it is made first.
 *
 * Not here: expiry; a bucket that goes away.
 */
#include "component.h"

#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"
#define BATCH "wasi:keyvalue/batch@0.2.0-draft2"
#define IDENTITY "steadfast:keyvalue/identity@0.1.0"

enum { OTHER = 2 };
enum { KEY_MAX_BYTES = 1024, VALUE_MAX_BYTES = 1 << 20 };
/* Keys in one answer. */
enum { PAGE = 256 };

struct text {
	char *at;
	uint32_t len;
};

struct entry {
	struct text key, value;
};

struct bucket {
	struct text name;
	struct entry *entries;
	uint32_t count, room;
};

/* A compare-and-swap operation: the value that it saw, which is none where there was no such key. */
struct cas {
	struct bucket *bucket;
	struct text key, seen;
	int some;
};

static struct bucket **buckets;
static uint32_t bucket_count, bucket_room;

/* Results in memory. An error is a discriminant and the text of "other"; `ok` and `err` start where the canonical ABI aligns them. */
static union {
	uint32_t words[8];
	int64_t longs[4];
} result;

IMPORT("[export]" STORE, "[resource-new]bucket") int32_t bucket_new(struct bucket *rep);
IMPORT("[export]" ATOMICS, "[resource-new]cas") int32_t cas_new(struct cas *rep);
IMPORT("[export]" ATOMICS, "[resource-rep]cas") struct cas *cas_rep(int32_t handle);
IMPORT("[export]" ATOMICS, "[resource-drop]cas") void cas_drop(int32_t handle);

static void *refuse(uint32_t *error, const char *why)
{
	result.words[0] = 1;
	error[0] = OTHER;
	error[1] = (uint32_t)(uintptr_t)why;
	error[2] = strlen(why);
	return &result;
}

static void *done(void)
{
	result.words[0] = 0;
	return &result;
}

static int order(struct text a, struct text b)
{
	int by = memcmp(a.at, b.at, a.len < b.len ? a.len : b.len);
	return by ? by : a.len < b.len ? -1 : a.len > b.len;
}

/* Where the key is, or would be. */
static uint32_t place(const struct bucket *bucket, struct text key)
{
	uint32_t low = 0, high = bucket->count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (order(bucket->entries[middle].key, key) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *find(const struct bucket *bucket, struct text key)
{
	uint32_t at = place(bucket, key);
	struct entry *entry = bucket->entries + at;
	return at < bucket->count && order(entry->key, key) == 0 ? entry : NULL;
}

/* Whether so many more keys have room. */
static int reserve(struct bucket *bucket, uint32_t more)
{
	if (bucket->room - bucket->count >= more)
		return 1;
	uint32_t room = bucket->room ? bucket->room * 2 : 16;
	if (room - bucket->count < more)
		room = bucket->count + more;
	struct entry *grown = realloc(bucket->entries, room * sizeof *grown);
	if (!grown)
		return 0;
	bucket->entries = grown;
	bucket->room = room;
	return 1;
}

/* Owns both from here on; false where there is no room. */
static int put(struct bucket *bucket, struct text key, struct text value)
{
	struct entry *entry = find(bucket, key);
	if (entry) {
		free(key.at);
		free(entry->value.at);
		entry->value = value;
		return 1;
	}
	if (!reserve(bucket, 1)) {
		free(key.at);
		free(value.at);
		return 0;
	}
	uint32_t at = place(bucket, key);
	memmove(bucket->entries + at + 1, bucket->entries + at, (bucket->count - at) * sizeof *bucket->entries);
	bucket->entries[at] = (struct entry){ key, value };
	bucket->count++;
	return 1;
}

/* The runtime's pointer to an empty text is none of malloc's. */
static struct text own(char *at, uint32_t len)
{
	return (struct text){ len ? at : NULL, len };
}

/* Owns the name from here on; NULL where there is no room. */
static struct bucket *open_bucket(struct text name)
{
	uint32_t low = 0, high = bucket_count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (order(buckets[middle]->name, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < bucket_count && order(buckets[low]->name, name) == 0) {
		free(name.at);
		return buckets[low];
	}
	if (bucket_count == bucket_room) {
		uint32_t more = bucket_room ? bucket_room * 2 : 16;
		struct bucket **grown = realloc(buckets, more * sizeof *grown);
		if (!grown) {
			free(name.at);
			return NULL;
		}
		buckets = grown;
		bucket_room = more;
	}
	struct bucket *bucket = calloc(1, sizeof *bucket);
	if (!bucket) {
		free(name.at);
		return NULL;
	}
	memmove(buckets + low + 1, buckets + low, (bucket_count++ - low) * sizeof *buckets);
	bucket->name = name;
	return buckets[low] = bucket;
}

/* result<bucket, error> */
EXPORT(STORE "#open") void *store_open(char *identifier, uint32_t len)
{
	struct bucket *bucket = open_bucket(own(identifier, len));
	if (!bucket)
		return refuse(&result.words[1], "no space");
	result.words[1] = (uint32_t)bucket_new(bucket);
	return done();
}

/* The bucket outlives its handles. */
EXPORT(STORE "#[dtor]bucket") void bucket_close(struct bucket *bucket)
{
	(void)bucket;
}

/* result<option<list<u8>>, error> */
EXPORT(STORE "#[method]bucket.get") void *bucket_get(struct bucket *bucket, char *key, uint32_t len)
{
	struct text wanted = own(key, len);
	const struct entry *entry = find(bucket, wanted);
	free(wanted.at);
	result.words[1] = entry != NULL;
	result.words[2] = entry ? (uint32_t)(uintptr_t)entry->value.at : 0;
	result.words[3] = entry ? entry->value.len : 0;
	return done();
}

/* result<_, error> */
EXPORT(STORE "#[method]bucket.set") void *bucket_set(struct bucket *bucket, char *key, uint32_t len, char *value, uint32_t value_len)
{
	struct text name = own(key, len), bytes = own(value, value_len);
	if (len > KEY_MAX_BYTES || value_len > VALUE_MAX_BYTES) {
		free(name.at);
		free(bytes.at);
		return refuse(&result.words[1], "too long");
	}
	if (!put(bucket, name, bytes))
		return refuse(&result.words[1], "no space");
	return done();
}

/* Owns the key from here on. */
static void take_away(struct bucket *bucket, struct text key)
{
	struct entry *entry = find(bucket, key);
	free(key.at);
	if (entry) {
		free(entry->key.at);
		free(entry->value.at);
		memmove(entry, entry + 1, (size_t)(bucket->entries + --bucket->count - entry) * sizeof *entry);
	}
}

EXPORT(STORE "#[method]bucket.delete") void *bucket_delete(struct bucket *bucket, char *key, uint32_t len)
{
	take_away(bucket, own(key, len));
	return done();
}

/* result<bool, error> */
EXPORT(STORE "#[method]bucket.exists") void *bucket_exists(struct bucket *bucket, char *key, uint32_t len)
{
	struct text wanted = own(key, len);
	result.words[1] = find(bucket, wanted) != NULL;
	free(wanted.at);
	return done();
}

/* result<key-response, error>: the list, then an option<string>. The cursor is the last key of a page: the next one begins behind it, whatever was set
 * or taken away meanwhile. */
EXPORT(STORE "#[method]bucket.list-keys") void *bucket_list_keys(struct bucket *bucket, int32_t has_cursor, char *cursor, uint32_t len)
{
	uint32_t from = 0;
	if (has_cursor) {
		struct text last = own(cursor, len);
		from = place(bucket, last);
		from += from < bucket->count && order(bucket->entries[from].key, last) == 0;
		free(last.at);
	}
	uint32_t count = bucket->count - from < PAGE ? bucket->count - from : PAGE;
	struct text *list = malloc(count ? count * sizeof *list : 1);
	if (!list)
		return refuse(&result.words[1], "no space");
	for (uint32_t i = 0; i < count; i++)
		list[i] = bucket->entries[from + i].key;
	result.words[1] = (uint32_t)(uintptr_t)list;
	result.words[2] = count;
	result.words[3] = from + count < bucket->count;
	struct text last = count ? list[count - 1] : (struct text){ 0 };
	result.words[4] = (uint32_t)(uintptr_t)last.at;
	result.words[5] = last.len;
	return done();
}

EXPORT("cabi_post_" STORE "#[method]bucket.list-keys") void bucket_list_keys_done(uint32_t *words)
{
	if (words[0] == 0)
		free((void *)(uintptr_t)words[1]);
}

/* False where it is no number that fits. */
static int number(struct text text, int64_t *n)
{
	uint32_t minus = text.len && text.at[0] == '-';
	*n = 0;
	for (uint32_t i = minus; i < text.len; i++) {
		int32_t digit = (unsigned char)text.at[i] - '0';
		if (digit < 0 || digit > 9 || __builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, minus ? -digit : digit, n))
			return 0;
	}
	return text.len > minus;
}

/* 2^63 has 19 digits. */
enum { DIGITS = 20 };

static struct text decimal(int64_t n)
{
	char digits[DIGITS];
	uint32_t at = DIGITS;
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;
	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (n < 0)
		digits[--at] = '-';
	char *copy = malloc(DIGITS - at);
	if (!copy)
		__builtin_trap();
	memcpy(copy, digits + at, DIGITS - at);
	return (struct text){ copy, DIGITS - at };
}

/* result<s64, error>: the payload is aligned to 8. */
EXPORT(ATOMICS "#increment") void *increment(struct bucket *bucket, char *key, uint32_t len, int64_t delta)
{
	struct text wanted = own(key, len);
	const struct entry *entry = find(bucket, wanted);
	int64_t n = 0;
	const char *why = NULL;
	if (len > KEY_MAX_BYTES)
		why = "too long";
	else if (entry && !number(entry->value, &n))
		why = "not a number";
	else if (__builtin_add_overflow(n, delta, &n))
		why = "too large";
	if (why) {
		free(wanted.at);
		return refuse(&result.words[2], why);
	}
	if (!put(bucket, wanted, decimal(n)))
		return refuse(&result.words[2], "no space");
	result.longs[1] = n;
	return done();
}

/* --- Compare and swap */

/* Its own copy, 0 where there is no room. */
static int copied(struct text from, struct text *to)
{
	char *at = from.len ? malloc(from.len) : NULL;
	if (from.len && !at)
		return 0;
	if (from.len)
		memcpy(at, from.at, from.len);
	*to = (struct text){ at, from.len };
	return 1;
}

static void cas_free(struct cas *cas)
{
	free(cas->key.at);
	free(cas->seen.at);
	free(cas);
}

/* Owns the key from here on. What it sees is the present value. NULL where there is no room. */
static struct cas *look(struct bucket *bucket, struct text key)
{
	struct cas *cas = calloc(1, sizeof *cas);
	if (!cas) {
		free(key.at);
		return NULL;
	}
	const struct entry *entry = find(bucket, key);
	*cas = (struct cas){ .bucket = bucket, .key = key, .some = entry != NULL };
	if (entry && !copied(entry->value, &cas->seen)) {
		cas_free(cas);
		return NULL;
	}
	return cas;
}

/* result<cas, error> */
EXPORT(ATOMICS "#[static]cas.new") void *cas_begin(struct bucket *bucket, char *key, uint32_t len)
{
	struct text name = own(key, len);
	if (len > KEY_MAX_BYTES) {
		free(name.at);
		return refuse(&result.words[1], "too long");
	}
	struct cas *cas = look(bucket, name);
	if (!cas)
		return refuse(&result.words[1], "no space");
	result.words[1] = (uint32_t)cas_new(cas);
	return done();
}

EXPORT(ATOMICS "#[dtor]cas") void cas_end(struct cas *cas)
{
	cas_free(cas);
}

/* result<option<list<u8>>, error> */
EXPORT(ATOMICS "#[method]cas.current") void *cas_current(struct cas *cas)
{
	result.words[1] = (uint32_t)cas->some;
	result.words[2] = (uint32_t)(uintptr_t)cas->seen.at;
	result.words[3] = cas->seen.len;
	return done();
}

/* result<_, cas-error>: a discriminant, that of the cas-error, and an error or a handle. */
EXPORT(ATOMICS "#swap") void *swap(int32_t handle, char *value, uint32_t len)
{
	const struct cas *cas = cas_rep(handle);
	struct text bytes = own(value, len), key;
	const struct entry *entry = find(cas->bucket, cas->key);
	int same = entry ? cas->some && order(entry->value, cas->seen) == 0 : !cas->some;
	const char *why = len > VALUE_MAX_BYTES ? "too long" : copied(cas->key, &key) ? NULL : "no space";
	if (why) {
		free(bytes.at);
	} else if (same) {
		why = put(cas->bucket, key, bytes) ? NULL : "no space";
	} else {
		free(bytes.at);
		struct cas *next = look(cas->bucket, key);
		if (next) {
			cas_drop(handle);
			result.words[0] = result.words[1] = 1;
			result.words[2] = (uint32_t)cas_new(next);
			return &result;
		}
		why = "no space";
	}
	cas_drop(handle);
	if (!why)
		return done();
	refuse(&result.words[2], why);
	result.words[1] = 0;
	return &result;
}

/* option<list<u8>> */
EXPORT(IDENTITY "#cas-seen") void *cas_seen(struct cas *cas)
{
	result.words[0] = (uint32_t)cas->some;
	result.words[1] = (uint32_t)(uintptr_t)cas->seen.at;
	result.words[2] = cas->seen.len;
	return &result;
}

EXPORT(IDENTITY "#cas-again") int32_t cas_again(struct bucket *bucket, char *key, uint32_t len, int32_t some, char *seen, uint32_t seen_len)
{
	struct cas *cas = calloc(1, sizeof *cas);
	if (!cas)
		__builtin_trap();
	*cas = (struct cas){ .bucket = bucket, .key = own(key, len), .some = some };
	if (some)
		cas->seen = own(seen, seen_len);
	return cas_new(cas);
}

/* option<tuple<string, list<u8>>> */
struct found {
	uint32_t some;
	struct entry entry;
};

_Static_assert(sizeof(struct found) == 20, "as the canonical ABI lays it out");

/* result<list<option<tuple<string, list<u8>>>>, error> */
EXPORT(BATCH "#get-many") void *get_many(struct bucket *bucket, struct text *keys, uint32_t count)
{
	struct found *all = calloc(count ? count : 1, sizeof *all);
	for (uint32_t i = 0; i < count; i++) {
		struct text key = own(keys[i].at, keys[i].len);
		const struct entry *entry = find(bucket, key);
		free(key.at);
		if (all && entry)
			all[i] = (struct found){ 1, *entry };
	}
	if (count)
		free(keys);
	if (!all)
		return refuse(&result.words[1], "no space");
	result.words[1] = (uint32_t)(uintptr_t)all;
	result.words[2] = count;
	return done();
}

EXPORT("cabi_post_" BATCH "#get-many") void get_many_done(uint32_t *words)
{
	if (words[0] == 0)
		free((void *)(uintptr_t)words[1]);
}

/* result<_, error> */
EXPORT(BATCH "#set-many") void *set_many(struct bucket *bucket, struct entry *pairs, uint32_t count)
{
	const char *why = NULL;
	for (uint32_t i = 0; i < count; i++)
		if (pairs[i].key.len > KEY_MAX_BYTES || pairs[i].value.len > VALUE_MAX_BYTES)
			why = "too long";
	if (!why && !reserve(bucket, count))
		why = "no space";
	for (uint32_t i = 0; i < count; i++) {
		struct text key = own(pairs[i].key.at, pairs[i].key.len), value = own(pairs[i].value.at, pairs[i].value.len);
		if (why) {
			free(key.at);
			free(value.at);
		} else {
			put(bucket, key, value);
		}
	}
	if (count)
		free(pairs);
	return why ? refuse(&result.words[1], why) : done();
}

EXPORT(BATCH "#delete-many") void *delete_many(struct bucket *bucket, struct text *keys, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		take_away(bucket, own(keys[i].at, keys[i].len));
	if (count)
		free(keys);
	return done();
}
