/* Streams over files: wasi:io/streams. A stream is an inode and a place in it, which the store keeps, so that it comes back where it was.
 *
 * A stream holds its file as a descriptor does. Nothing here waits: what can be read is there, and what is written is stored at once. A
 * stream that finds no room, or the end of its file, is closed.
 */
#ifndef STEADFAST_STREAMS_H
#define STEADFAST_STREAMS_H

#include "paths.h"

#define STREAMS "wasi:io/streams@0.2.0"
#define POLL "wasi:io/poll@0.2.0"
#define INPUT(name) EXPORT(STREAMS "#[method]input-stream." name)
#define OUTPUT(name) EXPORT(STREAMS "#[method]output-stream." name)

struct stream {
	uint64_t id;
};

/* What the store has of one. */
struct course {
	uint64_t offset;
	uint32_t number;
	/* It writes where the file ends. */
	uint32_t appends;
};

IMPORT("[export]" STREAMS, "[resource-new]input-stream") int32_t input_new(struct stream *rep);
IMPORT("[export]" STREAMS, "[resource-new]output-stream") int32_t output_new(struct stream *rep);
IMPORT("[export]" POLL, "[resource-new]pollable") int32_t pollable_new(int32_t rep);

enum { CLOSED = 1 };

static int32_t streams(void)
{
	return opened((struct text){ "fs/streams", 10 });
}

static struct stream *stream_of(uint64_t id)
{
	struct stream *stream = need(sizeof *stream);
	stream->id = id;
	return stream;
}

static struct stream *begin_stream(uint32_t number, uint64_t offset, uint32_t appends)
{
	struct course course = { offset, number, appends };
	struct inode inode = load(number);
	int32_t bucket = streams();
	uint64_t id = next_of(bucket);
	set(bucket, label("", id), &course, sizeof course);
	bucket_drop(bucket);
	inode.opens++;
	save(number, inode);
	return stream_of(id);
}

static struct course course_of(const struct stream *stream)
{
	struct course course;
	int32_t bucket = streams();
	if (!get_fixed(bucket, label("", stream->id), &course, sizeof course))
		__builtin_trap();
	bucket_drop(bucket);
	return course;
}

static void go_on(const struct stream *stream, struct course course, uint64_t by)
{
	course.offset += by;
	int32_t bucket = streams();
	set(bucket, label("", stream->id), &course, sizeof course);
	bucket_drop(bucket);
}

static void end_stream(struct stream *stream)
{
	struct course course = course_of(stream);
	int32_t bucket = streams();
	take_away(bucket, label("", stream->id));
	bucket_drop(bucket);
	struct inode inode = load(course.number);
	if (inode.opens)
		inode.opens--;
	settle(course.number, inode);
	free(stream);
}

EXPORT(STREAMS "#[dtor]input-stream") void end_input(struct stream *stream)
{
	end_stream(stream);
}

EXPORT(STREAMS "#[dtor]output-stream") void end_output(struct stream *stream)
{
	end_stream(stream);
}

EXPORT(IDENTITY "#of-input") uint64_t of_input(struct stream *stream)
{
	return stream->id;
}

EXPORT(IDENTITY "#of-output") uint64_t of_output(struct stream *stream)
{
	return stream->id;
}

EXPORT(IDENTITY "#input-again") int32_t input_again(uint64_t id)
{
	return input_new(stream_of(id));
}

EXPORT(IDENTITY "#output-again") int32_t output_again(uint64_t id)
{
	return output_new(stream_of(id));
}

/* --- Reading */

INPUT("read") void *read_on(struct stream *stream, uint64_t length)
{
	struct course course = course_of(stream);
	struct list_result found = { 0 };
	int32_t file = file_of(course.number);
	if (file >= 0) {
		file_read(file, course.offset, length < READ_MAX_BYTES ? (uint32_t)length : READ_MAX_BYTES, &found);
		file_drop(file);
	}
	if (file < 0 || found.err || (length && !found.list.len)) {
		result.bytes[4] = CLOSED;
		result.bytes[0] = 1;
		return &result;
	}
	go_on(stream, course, found.list.len);
	result.words[1] = (uint32_t)(uintptr_t)found.list.at;
	result.words[2] = found.list.len;
	result.bytes[0] = 0;
	return &result;
}

INPUT("blocking-read") void *blocking_read_on(struct stream *stream, uint64_t length)
{
	return read_on(stream, length);
}

EXPORT("cabi_post_" STREAMS "#[method]input-stream.read") void read_on_done(uint32_t *read)
{
	if (!*(uint8_t *)read)
		done_with((struct text){ (const char *)(uintptr_t)read[1], read[2] });
}

EXPORT("cabi_post_" STREAMS "#[method]input-stream.blocking-read") void blocking_read_on_done(uint32_t *read)
{
	read_on_done(read);
}

INPUT("skip") void *skip_on(struct stream *stream, uint64_t length)
{
	struct course course = course_of(stream);
	int32_t file = file_of(course.number);
	uint64_t size = file < 0 ? 0 : file_size(file);
	if (file >= 0)
		file_drop(file);
	uint64_t left = size > course.offset ? size - course.offset : 0;
	uint64_t by = length < left ? length : left;
	result.bytes[0] = length && !by;
	if (length && !by) {
		result.bytes[8] = CLOSED;
		return &result;
	}
	go_on(stream, course, by);
	result.longs[1] = by;
	return &result;
}

INPUT("blocking-skip") void *blocking_skip_on(struct stream *stream, uint64_t length)
{
	return skip_on(stream, length);
}

/* --- Writing */

static void *written(int good)
{
	result.bytes[0] = !good;
	if (!good)
		result.bytes[4] = CLOSED;
	return &result;
}

static int write_on(struct stream *stream, const char *bytes, uint32_t len)
{
	struct course course = course_of(stream);
	int32_t file = file_of(course.number);
	if (file < 0)
		return 0;
	uint64_t at = course.appends ? file_size(file) : course.offset;
	struct long_result done = { .err = 1 };
	if (at <= SIZE_MAX_BYTES && at + len <= SIZE_MAX_BYTES)
		file_write(file, at, bytes, len, &done);
	file_drop(file);
	if (done.err || done.n != len)
		return 0;
	go_on(stream, course, len);
	if (len)
		data_changed(course.number);
	return 1;
}

OUTPUT("check-write") void *check_write(struct stream *stream)
{
	(void)stream;
	result.bytes[0] = 0;
	result.longs[1] = READ_MAX_BYTES;
	return &result;
}

OUTPUT("write") void *write_stream(struct stream *stream, char *bytes, uint32_t len)
{
	int good = write_on(stream, bytes, len);
	free(len ? bytes : NULL);
	return written(good);
}

OUTPUT("blocking-write-and-flush") void *blocking_write_stream(struct stream *stream, char *bytes, uint32_t len)
{
	return write_stream(stream, bytes, len);
}

OUTPUT("flush") void *flush_stream(struct stream *stream)
{
	(void)stream;
	return written(1);
}

OUTPUT("blocking-flush") void *blocking_flush_stream(struct stream *stream)
{
	return flush_stream(stream);
}

OUTPUT("write-zeroes") void *write_zeroes(struct stream *stream, uint64_t len)
{
	/* As much as check-write allows; more is the caller's mistake. */
	if (len > READ_MAX_BYTES)
		return written(0);
	char *zeroes = need(len ? (size_t)len : 1);
	int good = write_on(stream, zeroes, (uint32_t)len);
	free(zeroes);
	return written(good);
}

OUTPUT("blocking-write-zeroes-and-flush") void *blocking_write_zeroes(struct stream *stream, uint64_t len)
{
	return write_zeroes(stream, len);
}

/* The source goes on by as much as was taken. */
OUTPUT("splice") void *splice(struct stream *to, struct stream *from, uint64_t len)
{
	struct course course = course_of(from);
	struct list_result found = { 0 };
	int32_t file = file_of(course.number);
	if (file >= 0) {
		file_read(file, course.offset, len < READ_MAX_BYTES ? (uint32_t)len : READ_MAX_BYTES, &found);
		file_drop(file);
	}
	uint32_t by = found.list.len;
	int good = file >= 0 && !found.err && (!len || by) && write_on(to, found.list.at, by);
	if (good)
		go_on(from, course, by);
	if (!found.err)
		done_with(found.list);
	result.bytes[0] = !good;
	if (good)
		result.longs[1] = by;
	else
		result.bytes[8] = CLOSED;
	return &result;
}

OUTPUT("blocking-splice") void *blocking_splice(struct stream *to, struct stream *from, uint64_t len)
{
	return splice(to, from, len);
}

/* --- Readiness: always */

INPUT("subscribe") int32_t input_subscribe(struct stream *stream)
{
	(void)stream;
	return pollable_new(1);
}

OUTPUT("subscribe") int32_t output_subscribe(struct stream *stream)
{
	(void)stream;
	return pollable_new(1);
}

EXPORT(POLL "#[method]pollable.ready") int32_t pollable_ready(int32_t pollable)
{
	return pollable;
}

EXPORT(POLL "#[method]pollable.block") void pollable_block(int32_t pollable)
{
	(void)pollable;
}

/* list<u32>: the places of those that are ready. */
EXPORT(POLL "#poll") void *poll_all(int32_t *pollables, uint32_t count)
{
	uint32_t *ready = malloc(count ? count * sizeof *ready : 1);
	if (!ready)
		__builtin_trap();
	uint32_t n = 0;
	for (uint32_t i = 0; i < count; i++)
		if (pollable_ready(pollables[i]))
			ready[n++] = i;
	if (count)
		free(pollables);
	result.words[0] = (uint32_t)(uintptr_t)ready;
	result.words[1] = n;
	return &result;
}

EXPORT("cabi_post_" POLL "#poll") void poll_all_done(uint32_t *words)
{
	free((void *)(uintptr_t)words[0]);
}

/* Nobody has an error. */
EXPORT("wasi:filesystem/types@0.2.0#filesystem-error-code") void *filesystem_error_code(int32_t error)
{
	(void)error;
	result.bytes[0] = 0;
	return &result;
}

EXPORT("wasi:io/error@0.2.0#[method]error.to-debug-string") void *to_debug_string(int32_t error)
{
	(void)error;
	result.words[0] = result.words[1] = 0;
	return &result;
}

#endif
