/* An HTTP/1.1 server over a key-value store and a file system.
 *
 *   GET, PUT, DELETE /kv/KEY    a value
 *   POST             /count/KEY adds one to a number, and tells it
 *   GET, PUT         /files/NAME
 *
 * State: none between two requests. A request that a failure interrupts is repeated in a fresh body. It has to ask others for the same as
 * before: the host then answers from its journal, and a POST counts once. So the bucket is opened by each request. One that was kept open would
 * be opened by the repetition alone, which would count again.
 *
 * Invariants
 *  1. What a request asks others for depends on its bytes and on their answers alone.
 *  2. What leaves as text is printable ASCII, so no client can have the server stopped by a string that is no UTF-8.
 * Not here: sockets, chunked bodies, ranges, percent-encoding.
 * See RFC 9112.
 */
#include "others.h"

#include <strings.h>

#define SERVER "steadfast:http/server@0.1.0"

enum { HEAD_MAX_BYTES = 8192, BODY_MAX_BYTES = 65536, FILE_MAX_BYTES = 1 << 20 };

struct request {
	struct text method, target, body;
	/* Bytes of head and body. */
	uint32_t used;
	int close, expects;
};

/* record answer; the room of the output is kept for the next one. */
static struct {
	uint32_t used;
	char *output;
	uint32_t len;
	uint8_t close;
} answer;
static uint32_t room;

static void add(const void *bytes, uint32_t len)
{
	if (answer.len + len > room) {
		uint32_t more = 2 * (answer.len + len);
		char *grown = realloc(answer.output, more);
		if (!grown)
			__builtin_trap();
		answer.output = grown;
		room = more;
	}
	memcpy(answer.output + answer.len, bytes, len);
	answer.len += len;
}

static void say(const char *text)
{
	add(text, strlen(text));
}

static void reply(const struct request *request, const char *status, struct text body)
{
	say("HTTP/1.1 ");
	say(status);
	say("\r\nContent-Length: ");
	struct text length = decimal(body.len);
	add(length.at, length.len);
	if (request->close)
		say("\r\nConnection: close");
	say("\r\n\r\n");
	add(body.at, body.len);
	answer.used = request->used;
	answer.close = request->close != 0;
}

static const struct text nothing = { "", 0 };

/* Without a body to be trusted nothing can follow on this connection. */
static void refuse(struct request *request, const char *status)
{
	request->close = 1;
	reply(request, status, nothing);
}

static int is(struct text text, const char *word)
{
	return text.len == strlen(word) && strncasecmp(text.at, word, text.len) == 0;
}

static struct text trimmed(struct text text)
{
	for (; text.len && (*text.at == ' ' || *text.at == '\t'); text.at++)
		text.len--;
	while (text.len && (text.at[text.len - 1] == ' ' || text.at[text.len - 1] == '\t'))
		text.len--;
	return text;
}

/* Up to a character, which is left out; the rest stays. */
static struct text until(struct text *rest, char end)
{
	const char *at = memchr(rest->at, end, rest->len);
	struct text found = { rest->at, at ? (uint32_t)(at - rest->at) : rest->len };
	uint32_t gone = at ? found.len + 1 : found.len;
	rest->at += gone;
	rest->len -= gone;
	return found;
}

/* One field of the head; a status where it cannot be met. */
static const char *field(struct request *request, struct text line)
{
	struct text value = line, name = until(&value, ':');
	value = trimmed(value);
	if (is(name, "transfer-encoding"))
		return "501 Not Implemented";
	if (is(name, "connection"))
		request->close = is(value, "close");
	if (is(name, "expect"))
		request->expects = is(value, "100-continue");
	if (!is(name, "content-length"))
		return NULL;
	uint32_t n = 0;
	for (uint32_t i = 0; i < value.len; i++) {
		uint32_t digit = (uint32_t)(unsigned char)value.at[i] - '0';
		if (digit > 9)
			return "400 Bad Request";
		n = n * 10 + digit;
		if (n > BODY_MAX_BYTES)
			return "413 Content Too Large";
	}
	request->body.len = n;
	return value.len ? NULL : "400 Bad Request";
}

static const char *parse(struct request *request, struct text head)
{
	struct text line = until(&head, '\n');
	request->method = until(&line, ' ');
	request->target = until(&line, ' ');
	if (line.len && line.at[line.len - 1] == '\r')
		line.len--;
	if (!is(line, "HTTP/1.1") && !is(line, "HTTP/1.0"))
		return "400 Bad Request";
	request->close = is(line, "HTTP/1.0");
	for (uint32_t i = 0; i < request->target.len; i++)
		if (request->target.at[i] <= ' ' || request->target.at[i] > '~')
			return "400 Bad Request";
	while (head.len) {
		line = until(&head, '\n');
		if (line.len && line.at[line.len - 1] == '\r')
			line.len--;
		const char *status = field(request, line);
		if (status)
			return status;
	}
	return NULL;
}

static void serve_key(const struct request *request, int32_t bucket, struct text key)
{
	if (is(request->method, "GET")) {
		struct option_result found = { 0 };
		bucket_get(bucket, key.at, key.len, &found);
		if (found.err || !found.some)
			reply(request, "404 Not Found", nothing);
		else
			reply(request, "200 OK", found.list);
		/* Of an error it is the text of "other". */
		if (found.err ? found.some == OTHER : found.some)
			done_with(found.list);
		return;
	}
	struct word_result done = { 0 };
	if (is(request->method, "PUT"))
		bucket_set(bucket, key.at, key.len, request->body.at, request->body.len, &done);
	else if (is(request->method, "DELETE"))
		bucket_delete(bucket, key.at, key.len, &done);
	else {
		reply(request, "405 Method Not Allowed", nothing);
		return;
	}
	reply(request, done.err ? "507 Insufficient Storage" : "204 No Content", nothing);
	if (done.err && (uint8_t)done.word == OTHER)
		done_with(done.text);
}

static void serve_count(const struct request *request, int32_t bucket, struct text key)
{
	if (!is(request->method, "POST")) {
		reply(request, "405 Method Not Allowed", nothing);
		return;
	}
	struct long_result counted = { 0 };
	increment(bucket, key.at, key.len, 1, &counted);
	if (counted.err) {
		reply(request, "409 Conflict", nothing);
		if (counted.kind == OTHER)
			done_with(counted.text);
		return;
	}
	char copy[20];
	struct text digits = decimal(counted.n);
	memcpy(copy, digits.at, digits.len);
	reply(request, "200 OK", (struct text){ copy, digits.len });
}

static void serve_file(const struct request *request, struct text name)
{
	int put = is(request->method, "PUT");
	if (!put && !is(request->method, "GET")) {
		reply(request, "405 Method Not Allowed", nothing);
		return;
	}
	struct word_result file = { 0 };
	file_open(name.at, name.len, put, &file);
	if (file.err) {
		reply(request, put ? "507 Insufficient Storage" : "404 Not Found", nothing);
		return;
	}
	if (put) {
		uint8_t cut[2] = { 0 };
		struct long_result written = { 0 };
		file_truncate((int32_t)file.word, 0, cut);
		file_write((int32_t)file.word, 0, request->body.at, request->body.len, &written);
		reply(request, cut[0] || written.err ? "507 Insufficient Storage" : "204 No Content", nothing);
	} else {
		struct list_result found = { 0 };
		file_read((int32_t)file.word, 0, FILE_MAX_BYTES, &found);
		reply(request, found.err ? "404 Not Found" : "200 OK", found.err ? nothing : found.list);
		if (!found.err)
			done_with(found.list);
	}
	file_drop((int32_t)file.word);
}

/* The part behind a prefix, if the target has it and something follows. */
static int behind(struct text target, const char *prefix, struct text *rest)
{
	uint32_t len = strlen(prefix);
	*rest = (struct text){ target.at + len, target.len - len };
	return target.len > len && memcmp(target.at, prefix, len) == 0;
}

static void with_bucket(const struct request *request, struct text key, void (*serve)(const struct request *, int32_t, struct text))
{
	struct word_result bucket = { 0 };
	store_open("http", 4, &bucket);
	if (bucket.err) {
		reply(request, "507 Insufficient Storage", nothing);
		if ((uint8_t)bucket.word == OTHER)
			done_with(bucket.text);
		return;
	}
	serve(request, (int32_t)bucket.word, key);
	bucket_drop((int32_t)bucket.word);
}

static void route(const struct request *request)
{
	struct text rest;
	if (behind(request->target, "/kv/", &rest))
		with_bucket(request, rest, serve_key);
	else if (behind(request->target, "/count/", &rest))
		with_bucket(request, rest, serve_count);
	else if (behind(request->target, "/files/", &rest))
		serve_file(request, rest);
	else
		reply(request, "404 Not Found", nothing);
}

/* Where the head ends, behind the empty line; 0 where it does not yet. */
static uint32_t head_length(struct text input)
{
	for (uint32_t i = 3; i < input.len && i < HEAD_MAX_BYTES; i++)
		if (memcmp(input.at + i - 3, "\r\n\r\n", 4) == 0)
			return i + 1;
	return 0;
}

EXPORT(SERVER "#serve") void *serve(char *input, uint32_t len)
{
	struct request request = { 0 };
	answer.used = 0;
	answer.len = 0;
	answer.close = 0;
	uint32_t head = head_length((struct text){ input, len });
	if (!head && len >= HEAD_MAX_BYTES)
		refuse(&request, "431 Request Header Fields Too Large");
	if (head) {
		/* Without the empty line. */
		const char *status = parse(&request, (struct text){ input, head - 2 });
		request.body.at = input + head;
		request.used = head + request.body.len;
		if (status)
			refuse(&request, status);
		else if (len == head && request.body.len && request.expects)
			say("HTTP/1.1 100 Continue\r\n\r\n");
		else if (len >= request.used)
			route(&request);
	}
	if (len)
		free(input);
	return &answer;
}
