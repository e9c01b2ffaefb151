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
	LOOP = 15,
	NAME_TOO_LONG = 18,
	NO_ENTRY = 20,
	INSUFFICIENT_SPACE = 23,
	NOT_DIRECTORY = 24,
	NOT_EMPTY = 25,
	NOT_PERMITTED = 31,
};
enum { NAME_MAX_BYTES = 255, PATH_MAX_BYTES = 4095 };
/* As many as Linux follows in one path. */
enum { LINKS_MAX = 40 };

/* When a symbolic link at the end of a path is followed. One before the end always is. */
enum follow {
	NEVER,
	/* Where a slash stands behind it. */
	BY_SLASH,
	ALWAYS,
};

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

/* A path goes on with what a link says. The names of a place lie in this memory: a call walks twice at most, so the walk before the last is over. */
static struct text followed(uint32_t link, struct text rest, unsigned walk)
{
	static char *rooms[2];
	struct text target = target_of(link);
	char *room = need(target.len + rest.len + 1);
	memcpy(room, target.at, target.len);
	memcpy(room + target.len, rest.at, rest.len);
	struct text path = { room, target.len + rest.len };
	done_with(target);
	free(rooms[walk]);
	rooms[walk] = room;
	return path;
}

static int walk(const struct node *start, struct text path, enum follow follow, struct place *place)
{
	static unsigned walks;
	unsigned this = walks++ % 2;
	uint32_t depth = 0, links = 0;
	*place = (struct place){ .directory = start->number };
	if (load(start->number).type != DIRECTORY)
		return NOT_DIRECTORY;
	if (!path.len)
		return NO_ENTRY;
	if (path.len > PATH_MAX_BYTES)
		return NAME_TOO_LONG;
	if (*path.at == '/')
		return NOT_PERMITTED;
	for (;;) {
		struct text name = component(&path);
		int last = only_slashes(path), up = is(name, "..");
		if (up || is(name, ".")) {
			if (up && !depth--)
				return NOT_PERMITTED;
			if (up)
				place->directory = load(place->directory).parent;
			if (!last)
				continue;
			place->number = place->directory;
			place->inode = load(place->number);
			return NONE;
		}
		if (name.len > NAME_MAX_BYTES)
			return NAME_TOO_LONG;
		uint32_t number = entry(place->directory, name);
		struct inode inode = number ? load(number) : (struct inode){ 0 };
		if (inode.type == SYMLINK && (!last || follow == ALWAYS || (follow == BY_SLASH && path.len))) {
			if (links++ == LINKS_MAX)
				return LOOP;
			path = followed(number, path, this);
			if (*path.at == '/')
				return NOT_PERMITTED;
			continue;
		}
		if (last) {
			place->name = name;
			place->wants_directory = path.len > 0;
			place->number = number;
			place->inode = inode;
			return NONE;
		}
		if (!number)
			return NO_ENTRY;
		if (inode.type != DIRECTORY)
			return NOT_DIRECTORY;
		depth++;
		place->directory = number;
	}
}

/* A path to something that must be there. */
static int find(const struct node *start, struct text path, enum follow follow, struct place *place)
{
	int error = walk(start, path, follow, place);
	if (error != NONE)
		return error;
	if (!place->number)
		return NO_ENTRY;
	return place->wants_directory && place->inode.type != DIRECTORY ? NOT_DIRECTORY : NONE;
}

/* How a path is looked up that ends at what it names. */
static enum follow by(uint32_t path_flags)
{
	return path_flags & 1 ? ALWAYS : BY_SLASH;
}

/* A name may be made in a directory that has one itself. */
static int may_make(const struct place *place)
{
	return load(place->directory).links ? NONE : NO_ENTRY;
}

#endif
