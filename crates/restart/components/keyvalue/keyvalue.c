/* wasi:keyvalue 0.2.0-draft in memory: store, atomics and batch.
 *
 * State: buckets with their keys, both sorted in arrays. Recovery gives a bucket back by "open" and a key by "set" (keyvalue.recover.toml), so nothing
 * here knows of it. A list of keys is sorted: the order in which they come back is not the order in which they were set.
 *
 * Invariant: a bucket stays where it is as long as the component runs; handles point to it.
 * A batch that is refused has changed nothing: room for all of it is made first.
 *
 * Not here: expiry; a bucket that goes away.
 */
#include "component.h"

#define STORE "wasi:keyvalue/store@0.2.0-draft"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft"
#define BATCH "wasi:keyvalue/batch@0.2.0-draft"

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

static struct bucket **buckets;
static uint32_t bucket_count, bucket_room;

/* Results in memory. An error is a discriminant and the text of "other"; `ok` and `err` start where the canonical ABI aligns them. */
static union {
	uint32_t words[8];
	uint64_t longs[4];
} result;

IMPORT("[export]" STORE, "[resource-new]bucket") int32_t bucket_new(struct bucket *rep);

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

/* result<key-response, error>: the payload is aligned to 8, and in it the list, then an option<u64>. */
EXPORT(STORE "#[method]bucket.list-keys") void *bucket_list_keys(struct bucket *bucket, int32_t has_cursor, uint64_t cursor)
{
	uint32_t from = has_cursor ? cursor < bucket->count ? (uint32_t)cursor : bucket->count : 0;
	uint32_t count = bucket->count - from < PAGE ? bucket->count - from : PAGE;
	struct text *list = malloc(count ? count * sizeof *list : 1);
	if (!list)
		return refuse(&result.words[2], "no space");
	for (uint32_t i = 0; i < count; i++)
		list[i] = bucket->entries[from + i].key;
	result.words[2] = (uint32_t)(uintptr_t)list;
	result.words[3] = count;
	result.words[4] = from + count < bucket->count;
	result.longs[3] = from + count;
	return done();
}

EXPORT("cabi_post_" STORE "#[method]bucket.list-keys") void bucket_list_keys_done(uint32_t *words)
{
	if (words[0] == 0)
		free((void *)(uintptr_t)words[2]);
}

/* False where it is no number that fits. */
static int number(struct text text, uint64_t *n)
{
	*n = 0;
	for (uint32_t i = 0; i < text.len; i++) {
		uint32_t digit = (uint32_t)(unsigned char)text.at[i] - '0';
		if (digit > 9 || __builtin_mul_overflow(*n, 10, n) || __builtin_add_overflow(*n, digit, n))
			return 0;
	}
	return text.len > 0;
}

/* 2^64 has 20 digits. */
enum { DIGITS = 20 };

static struct text decimal(uint64_t n)
{
	char digits[DIGITS];
	uint32_t at = DIGITS;
	do {
		digits[--at] = (char)('0' + n % 10);
		n /= 10;
	} while (n);
	char *copy = malloc(DIGITS - at);
	if (!copy)
		__builtin_trap();
	memcpy(copy, digits + at, DIGITS - at);
	return (struct text){ copy, DIGITS - at };
}

/* result<u64, error>: the payload is aligned to 8. */
EXPORT(ATOMICS "#increment") void *increment(struct bucket *bucket, char *key, uint32_t len, uint64_t delta)
{
	struct text wanted = own(key, len);
	const struct entry *entry = find(bucket, wanted);
	uint64_t n = 0;
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
