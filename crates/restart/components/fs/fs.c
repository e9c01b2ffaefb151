/* A file system in memory: names sorted in an array, bytes of a file in one piece that grows by half.
 *
 * State: names with their bytes and how often each is open. Recovery gives names and bytes back through "open" and "write"
 * (fs.recover.toml), so nothing here knows of it.
 *
 * Invariants
 *  1. An entry that is open stays where it is: handles point to it, the array points to entries.
 *  2. Every length and offset is checked in 64 bits before memory is touched.
 * Not here: directories, links, times; a file is gone only when nobody has it open.
 */
#include "component.h"

#define FILES "steadfast:fs/files@0.1.0"
enum { NO_ENTRY, BUSY, NO_SPACE, INVALID };
enum { NAME_MAX_BYTES = 255, SIZE_MAX_BYTES = 1 << 30 };

struct entry {
	char *name;
	uint32_t name_len;
	uint8_t *bytes;
	uint32_t size, room;
	uint32_t opened;
};

static struct entry **entries;
static uint32_t count, room;

IMPORT("[export]" FILES, "[resource-new]file") int32_t file_new(struct entry *rep);

static int order(const struct entry *entry, const char *name, uint32_t len)
{
	uint32_t n = entry->name_len < len ? entry->name_len : len;
	int by = memcmp(entry->name, name, n);
	return by ? by : entry->name_len < len ? -1 : entry->name_len > len;
}

/* Where the name is, or would be. */
static uint32_t place(const char *name, uint32_t len)
{
	uint32_t low = 0, high = count;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (order(entries[middle], name, len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct entry *make(uint32_t at, char *name, uint32_t len)
{
	if (count == room) {
		uint32_t more = room ? room * 2 : 16;
		struct entry **grown = realloc(entries, more * sizeof *grown);
		if (!grown)
			return NULL;
		entries = grown;
		room = more;
	}
	struct entry *entry = calloc(1, sizeof *entry);
	if (!entry)
		return NULL;
	memmove(entries + at + 1, entries + at, (count - at) * sizeof *entries);
	entries[at] = entry;
	count++;
	entry->name = name;
	entry->name_len = len;
	return entry;
}

/* result<file, refusal>: discriminant, then handle or case, four bytes each. */
EXPORT(FILES "#[static]file.open") uint32_t *file_open(char *path, uint32_t len, int32_t create)
{
	static uint32_t result[2];
	result[0] = 1;
	if (len == 0 || len > NAME_MAX_BYTES) {
		free(path);
		*(uint8_t *)&result[1] = INVALID;
		return result;
	}
	uint32_t at = place(path, len);
	struct entry *entry = at < count && order(entries[at], path, len) == 0 ? entries[at] : NULL;
	if (!entry && !create) {
		free(path);
		*(uint8_t *)&result[1] = NO_ENTRY;
		return result;
	}
	if (entry) {
		free(path);
	} else if (!(entry = make(at, path, len))) {
		free(path);
		*(uint8_t *)&result[1] = NO_SPACE;
		return result;
	}
	entry->opened++;
	result[0] = 0;
	result[1] = (uint32_t)file_new(entry);
	return result;
}

EXPORT(FILES "#[dtor]file") void file_close(struct entry *entry)
{
	entry->opened--;
}

/* result<list<u8>, refusal>: discriminant, then pointer and length, or case. */
EXPORT(FILES "#[method]file.read") uint32_t *file_read(struct entry *entry, uint64_t offset, uint32_t length)
{
	static uint32_t result[3];
	uint64_t left = offset < entry->size ? entry->size - offset : 0;
	result[0] = 0;
	result[1] = (uint32_t)(uintptr_t)(entry->bytes + (left ? offset : 0));
	result[2] = left < length ? (uint32_t)left : length;
	return result;
}

static int reserve(struct entry *entry, uint64_t size)
{
	if (size <= entry->room)
		return 1;
	if (size > SIZE_MAX_BYTES)
		return 0;
	uint64_t more = entry->room + entry->room / 2;
	if (more < size)
		more = size;
	uint8_t *grown = realloc(entry->bytes, (size_t)more);
	if (!grown)
		return 0;
	entry->bytes = grown;
	entry->room = (uint32_t)more;
	return 1;
}

/* result<u64, refusal>: discriminant at 0, payload at 8. */
EXPORT(FILES "#[method]file.write") uint64_t *file_write(struct entry *entry, uint64_t offset, uint8_t *data, uint32_t len)
{
	static uint64_t result[2];
	uint64_t end = offset + len;
	*(uint8_t *)result = 1;
	if (end < offset || end > SIZE_MAX_BYTES) {
		*(uint8_t *)&result[1] = INVALID;
	} else if (!reserve(entry, end)) {
		*(uint8_t *)&result[1] = NO_SPACE;
	} else {
		/* Nothing written changes nothing, beyond the end as well (write(2)). */
		if (len && offset > entry->size)
			memset(entry->bytes + entry->size, 0, (size_t)(offset - entry->size));
		if (len)
			memcpy(entry->bytes + offset, data, len);
		if (len && end > entry->size)
			entry->size = (uint32_t)end;
		*(uint8_t *)result = 0;
		result[1] = len;
	}
	free(data);
	return result;
}

EXPORT(FILES "#[method]file.truncate") uint8_t *file_truncate(struct entry *entry, uint64_t length)
{
	static uint8_t result[2];
	result[0] = 1;
	result[1] = NO_SPACE;
	if (length <= SIZE_MAX_BYTES && reserve(entry, length)) {
		if (length > entry->size)
			memset(entry->bytes + entry->size, 0, (size_t)(length - entry->size));
		entry->size = (uint32_t)length;
		result[0] = 0;
	}
	return result;
}

EXPORT(FILES "#[method]file.size") uint64_t file_size(struct entry *entry)
{
	return entry->size;
}

EXPORT(FILES "#remove") uint8_t *file_remove(char *path, uint32_t len)
{
	static uint8_t result[2];
	uint32_t at = place(path, len);
	struct entry *entry = at < count && order(entries[at], path, len) == 0 ? entries[at] : NULL;
	free(path);
	result[0] = !entry || entry->opened;
	result[1] = entry ? BUSY : NO_ENTRY;
	if (!result[0]) {
		memmove(entries + at, entries + at + 1, (count - at - 1) * sizeof *entries);
		count--;
		free(entry->name);
		free(entry->bytes);
		free(entry);
	}
	return result;
}

struct string {
	uint32_t at, len;
};

/* list<string>: pointer and length, to pairs of pointer and length. */
EXPORT(FILES "#names") uint32_t *file_names(void)
{
	static uint32_t result[2];
	struct string *list = count ? malloc(count * sizeof *list) : NULL;
	if (count && !list)
		__builtin_trap();
	for (uint32_t i = 0; i < count; i++)
		list[i] = (struct string){ (uint32_t)(uintptr_t)entries[i]->name, entries[i]->name_len };
	result[0] = (uint32_t)(uintptr_t)list;
	result[1] = count;
	return result;
}

EXPORT("cabi_post_" FILES "#names") void file_names_done(uint32_t *result)
{
	free((void *)(uintptr_t)result[0]);
}
