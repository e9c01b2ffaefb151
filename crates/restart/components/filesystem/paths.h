/* Where a path leads from an open directory. Errors are those of wasi:filesystem, by their numbers there. */
#ifndef STEADFAST_PATHS_H
#define STEADFAST_PATHS_H

#include "inodes.h"

enum error {
	NONE = -1,
	BAD_DESCRIPTOR = 3,
	BUSY = 4,
	EXIST = 7,
	FILE_TOO_LARGE = 8,
	INVALID = 12,
	IO = 13,
	IS_DIRECTORY = 14,
	NAME_TOO_LONG = 18,
	NO_ENTRY = 20,
	INSUFFICIENT_SPACE = 23,
	NOT_DIRECTORY = 24,
	NOT_EMPTY = 25,
	NOT_PERMITTED = 31,
};
enum { NAME_MAX_BYTES = 255 };

/* An open descriptor. */
struct node {
	uint32_t number, flags;
};

/* Where a path leads: a name in a directory, which may not exist; without a name the directory itself. */
struct place {
	uint32_t directory;
	struct text name;
	/* A slash or a dot follows the name. */
	int wants_directory;
	uint32_t number;
	struct inode inode;
};

static int is(struct text text, const char *word)
{
	return text.len == strlen(word) && memcmp(text.at, word, text.len) == 0;
}

static struct text component(struct text *rest)
{
	while (rest->len && *rest->at == '/')
		*rest = (struct text){ rest->at + 1, rest->len - 1 };
	struct text found = { rest->at, 0 };
	while (found.len < rest->len && found.at[found.len] != '/')
		found.len++;
	*rest = (struct text){ rest->at + found.len, rest->len - found.len };
	return found;
}

static int only_slashes(struct text rest)
{
	return !component(&rest).len;
}

/* One step; `depth` counts those below the start. */
static int step(uint32_t *directory, struct text name, uint32_t *depth)
{
	if (is(name, "."))
		return NONE;
	if (is(name, "..")) {
		if (!*depth)
			return NOT_PERMITTED;
		--*depth;
		*directory = load(*directory).parent;
		return NONE;
	}
	uint32_t number = entry(*directory, name);
	if (!number)
		return NO_ENTRY;
	if (load(number).type != DIRECTORY)
		return NOT_DIRECTORY;
	++*depth;
	*directory = number;
	return NONE;
}

static int walk(const struct node *start, struct text path, struct place *place)
{
	*place = (struct place){ .directory = start->number };
	uint32_t depth = 0;
	if (load(start->number).type != DIRECTORY)
		return NOT_DIRECTORY;
	if (!path.len)
		return NO_ENTRY;
	if (*path.at == '/')
		return NOT_PERMITTED;
	for (;;) {
		struct text name = component(&path);
		if (name.len > NAME_MAX_BYTES)
			return NAME_TOO_LONG;
		int dots = is(name, ".") || is(name, "..");
		if (only_slashes(path) && !dots) {
			place->name = name;
			place->wants_directory = path.len > 0;
			break;
		}
		int error = step(&place->directory, name, &depth);
		if (error != NONE)
			return error;
		if (only_slashes(path))
			break;
	}
	place->number = place->name.len ? entry(place->directory, place->name) : place->directory;
	if (place->number)
		place->inode = load(place->number);
	return NONE;
}

/* A path to something that must be there. */
static int find(const struct node *start, struct text path, struct place *place)
{
	int error = walk(start, path, place);
	if (error != NONE)
		return error;
	if (!place->number)
		return NO_ENTRY;
	return place->wants_directory && place->inode.type != DIRECTORY ? NOT_DIRECTORY : NONE;
}

/* A name may be made in a directory that has one itself. */
static int may_make(const struct place *place)
{
	return load(place->directory).links ? NONE : NO_ENTRY;
}

#endif
