/* Notes with a title and a text that grows at its end. State: the notes, and how many there are. */
#include "component.h"

#define NOTES "test:notes/notes@0.1.0"

struct note {
	char *title;
	uint32_t title_length;
	uint8_t *text;
	uint32_t length;
	uint8_t starred, stars;
};

IMPORT("[export]" NOTES, "[resource-new]note") int32_t note_new(struct note *rep);

static uint32_t count;
static uint32_t result[3];

static int32_t make(char *title, uint32_t length)
{
	struct note *note = calloc(1, sizeof *note);
	if (!note)
		__builtin_trap();
	note->title = title;
	note->title_length = length;
	count++;
	return note_new(note);
}

EXPORT(NOTES "#[constructor]note") int32_t note_constructor(char *title, uint32_t length)
{
	return make(length ? title : NULL, length);
}

EXPORT(NOTES "#[dtor]note") void note_destructor(struct note *note)
{
	count--;
	free(note->text);
	free(note->title);
	free(note);
}

EXPORT(NOTES "#[method]note.title") uint32_t *note_title(struct note *note)
{
	result[0] = (uint32_t)(uintptr_t)note->title;
	result[1] = note->title_length;
	return result;
}

EXPORT(NOTES "#[method]note.append") uint32_t note_append(struct note *note, uint8_t *text, uint32_t length)
{
	note->text = realloc(note->text, note->length + length + 1);
	if (!note->text)
		__builtin_trap();
	if (length) {
		memcpy(note->text + note->length, text, length);
		free(text);
	}
	note->length += length;
	return length;
}

EXPORT(NOTES "#[method]note.text") uint32_t *note_text(struct note *note, uint32_t offset, uint32_t length)
{
	uint32_t at = offset < note->length ? offset : note->length, left = note->length - at;
	result[0] = 0;
	result[1] = (uint32_t)(uintptr_t)(note->text + at);
	result[2] = length < left ? length : left;
	return result;
}

EXPORT(NOTES "#[method]note.star") void note_star(struct note *note, uint32_t stars)
{
	note->starred = 1;
	note->stars = (uint8_t)stars;
}

EXPORT(NOTES "#[method]note.stars") uint8_t *note_stars(struct note *note)
{
	static uint8_t stars[2];
	stars[0] = note->starred;
	stars[1] = note->stars;
	return stars;
}

/* result<note, string>: a discriminant, then the handle. */
EXPORT(NOTES "#[method]note.another") uint32_t *note_another(struct note *note)
{
	char *title = note->title_length ? malloc(note->title_length) : NULL;
	if (note->title_length) {
		if (!title)
			__builtin_trap();
		memcpy(title, note->title, note->title_length);
	}
	result[0] = 0;
	result[1] = (uint32_t)make(title, note->title_length);
	return result;
}

EXPORT(NOTES "#count") uint32_t note_count(void)
{
	return count;
}
