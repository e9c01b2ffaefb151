/* Storage: what storage.c knows of the program's descriptors in a pair, and join.c hands on to a site that comes back. */
#ifndef SF_STORAGE_H
#define SF_STORAGE_H

#define FDS_MAX 1024u /* the launcher sets RLIMIT_NOFILE to it */

/* Of a descriptor: whether each site has its own, and whether the ledger knows the file. */
enum {
	F_NONE,
	F_FILE,
	F_DIRECTORY,
	F_PROTECTED,
	F_STREAM,  /* 0 to 2 as the program was started with: each site's own */
	F_DEVICE,  /* null, zero, full, random, urandom: one is as good as another */
	F_SOCKET,
	F_LISTEN,
	F_CONNECTION,
	F_POLL, /* the secondary has one that nobody uses */
	F_PIPE,    /* the program's own, both ends: the secondary's holds the same bytes */
	F_COUNTER,
	F_DUPLEX, /* eventfd(2), an end of socketpair(2): the same (channel.c) */
	F_SIGNALS, /* signalfd(2): the secondary has one that nobody uses */
	F_FOREIGN,
		  /* the primary's alone: nobody can lead without it */
	F_OUTGOING, /* a socket that the program has connected: it is cut where the other site leads, whose own has no peer */
	F_TIMER,    /* timerfd(2): the secondary's comes due with it, as far as the primary's has told (alarm.c) */
	F_SEMAPHORE, /* eventfd(2) with EFD_SEMAPHORE: as a counter */
	F_WATCHES,  /* inotify(7): the secondary watches its own names */
};
_Static_assert(F_FOREIGN == 14, "crates/replica/src/site/flow.rs");
_Static_assert(F_TIMER == 16 && F_WATCHES == 18, "crates/replica/src/site/open.rs");
extern u8 sf_fd_class[FDS_MAX];

/* A TCP connection as its site's kernel knew it when it was accepted, or handed on; in the note of that event. */
struct sf_line {
	u32 known; /* the kernel has told all of it */
	u32 sends, gets; /* sequence number of the first byte that the program sends, and gets */
	u32 options, scales, segment, stamp; /* TCPI_OPT_*, TCPOPT_WINDOW's word, MSS, TCP_TIMESTAMP */
	u32 own_len, peer_len;
	u8 own[28], peer[28];
};
_Static_assert(sizeof(struct sf_line) == 92 && __builtin_offsetof(struct sf_line, own) == 36, "crates/replica/src/site/flow.rs, join.c");

#define SENT_BYTES (1ull << 20)
#define SNDBUF (SENT_BYTES / 4) /* the kernel doubles it, socket(7): it never holds more than half of the ring */
/* private.c has no use for the place in a pair */
#define SENT(fd) ((u8 *)(SF_STAGE + SENT_BYTES * (fd)))
struct sf_count {
	struct sf_line l;
	u64 got, sent, born;
	u32 backlog; /* of the descriptor whose number it is, not of a connection */
};
extern struct sf_count sf_line[FDS_MAX];
/* Of a connection: descriptors that are copies (dup(2)) have one line, that of any of their numbers, or of a free one. */
u64 sf_line_of(u64 fd);
void sf_line_begins(u64 fd);
void sf_line_copied(u64 fd, u64 to);

/* What the kernel knows of a connection now. Bytes that the peer has not acknowledged go to `unacknowledged`, where there
 * is room for SENT_BYTES; they count as bytes that the program is yet to send. Their number, 0 as well where there is no room. */
u64 sf_learn(u64 fd, struct sf_line *, u8 *unacknowledged);
s64 sf_sent_ring(void);
void sf_listing_lost(u64 fd);
u64 sf_closes_on_exec(s64 fd); /* O_CLOEXEC, or 0 */

/* Descriptors that a message has brought (channel.c), behind what the call brought. */
#define SF_CAME_MAX 32u
struct sf_came {
	s32 fd;
	u32 kind;
};
u32 sf_channel_came(u64 msg, int own, struct sf_came *);
void sf_channel_follow(u32 nr, const u64 a[6], s64 ret, const struct sf_came *, u32 n);
int sf_channel_call(u32 nr);
int sf_channel_sends(u32 nr);
int sf_channel_at_once(u32 nr, const u64 a[6]);

/* alarm.c: timers and watches by descriptor. */
int sf_alarm_call(u32 nr);
u64 sf_alarm_remains(u64 fd);
void sf_alarm_follow(u32 nr, const u64 a[6], u64 remains);
void sf_watch_follow(const u64 a[6], s64 ret);
s64 sf_alarm_give(struct sf_held *);
s64 sf_alarm_take(const struct sf_held *);
void sf_watches_begin(u64 fd, s64 number);
void sf_watch_added(u64 fd, s64 number);
void sf_watches_copied(u64 fd, u64 to);
s64 sf_watches_give(struct sf_held *);
s64 sf_watches_take(const struct sf_held *, const u8 *list);

/* shown.c: what mapped memory shows of a change. */
struct stat;
int sf_shown_elsewhere(const struct stat *);
void sf_shown_of(const struct stat *, u64 off);
void sf_shown_bytes(u64 fd, u64 from, u64 n);
void sf_shown_tells(struct sf_result *);
int sf_shown_agrees(const struct sf_result *);
s64 sf_shown_give(u8 *to);
s64 sf_shown_take(const u8 *at);

/* Between storage.c and crew.c. */
enum sf_pipe_end { SF_PIPE_NONE, SF_PIPE_READ, SF_PIPE_WRITE };
int sf_takes_turns(u32 nr, const u64 a[6]);
enum sf_pipe_end sf_pipe_end(u32 nr, const u64 a[6]);
u64 sf_bytes_left(u32 nr, const u64 a[6]);
void sf_pair_waited(u32 nr, const u64 a[6], s64 ret);
void sf_pair_reap(void);
int sf_pair_has_others(void);
int sf_pair_has_turn(void);

#endif
