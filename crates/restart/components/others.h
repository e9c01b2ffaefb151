/* What components in C import of the key-value store and of the file system, in the canonical ABI.
 *
 * What these give in memory was placed by cabi_realloc: done_with() frees it.
 */
#ifndef STEADFAST_OTHERS_H
#define STEADFAST_OTHERS_H

#include "component.h"

#define STORE "wasi:keyvalue/store@0.2.0-draft2"
#define ATOMICS "wasi:keyvalue/atomics@0.2.0-draft2"
#define FILES "steadfast:fs/files@0.1.0"

struct text {
	const char *at;
	uint32_t len;
};

/* Results: a discriminant of one byte, and the payload at its alignment. */
struct word_result {
	uint8_t err;
	uint32_t word;
	struct text text;
};
struct list_result {
	uint8_t err;
	struct text list;
};
struct option_result {
	uint8_t err;
	_Alignas(4) uint8_t some;
	struct text list;
};
struct long_result {
	uint8_t err;
	union {
		int64_t n;
		struct {
			uint8_t kind;
			struct text text;
		};
	};
};
struct keys_result {
	uint8_t err;
	_Alignas(4) struct text *keys;
	uint32_t count;
	_Alignas(4) uint8_t more;
	struct text cursor;
};

IMPORT(STORE, "open") void store_open(const char *name, uint32_t len, struct word_result *result);
IMPORT(STORE, "[method]bucket.get") void bucket_get(int32_t bucket, const char *key, uint32_t len, struct option_result *result);
IMPORT(STORE, "[method]bucket.set")
void bucket_set(int32_t bucket, const char *key, uint32_t len, const char *value, uint32_t value_len, struct word_result *result);
IMPORT(STORE, "[method]bucket.delete") void bucket_delete(int32_t bucket, const char *key, uint32_t len, struct word_result *result);
IMPORT(STORE, "[method]bucket.list-keys")
void bucket_list_keys(int32_t bucket, int32_t has_cursor, const char *cursor, uint32_t len, struct keys_result *result);
IMPORT(STORE, "[resource-drop]bucket") void bucket_drop(int32_t bucket);
IMPORT(ATOMICS, "increment") void increment(int32_t bucket, const char *key, uint32_t len, int64_t delta, struct long_result *result);
IMPORT(FILES, "[static]file.open") void file_open(const char *path, uint32_t len, int32_t create, struct word_result *result);
IMPORT(FILES, "[method]file.read") void file_read(int32_t file, uint64_t offset, uint32_t length, struct list_result *result);
IMPORT(FILES, "[method]file.write")
void file_write(int32_t file, uint64_t offset, const char *data, uint32_t len, struct long_result *result);
IMPORT(FILES, "[method]file.truncate") void file_truncate(int32_t file, uint64_t length, uint8_t *result);
IMPORT(FILES, "[method]file.size") uint64_t file_size(int32_t file);
IMPORT(FILES, "remove") void file_remove(const char *path, uint32_t len, uint8_t *result);
IMPORT(FILES, "[resource-drop]file") void file_drop(int32_t file);

_Static_assert(offsetof(struct option_result, some) == 4 && offsetof(struct option_result, list) == 8, "result<option<list<u8>>, error>");
_Static_assert(offsetof(struct long_result, n) == 8, "result<s64, error>");
_Static_assert(offsetof(struct keys_result, more) == 12 && offsetof(struct keys_result, cursor) == 16, "result<key-response, error>");

/* What the runtime has copied here. */
static inline void done_with(struct text text)
{
	if (text.len)
		free((void *)text.at);
}

enum { OTHER = 2 };

/* 2^63 has 19 digits. The text lies in a buffer that the next number takes. */
static inline struct text decimal(int64_t n)
{
	static char digits[20];
	uint32_t at = sizeof digits;
	uint64_t rest = n < 0 ? -(uint64_t)n : (uint64_t)n;
	do {
		digits[--at] = (char)('0' + rest % 10);
		rest /= 10;
	} while (rest);
	if (n < 0)
		digits[--at] = '-';
	return (struct text){ digits + at, sizeof digits - at };
}

#endif
