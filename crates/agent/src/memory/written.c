/* Written: calls that change a file which processes have as memory.
 *
 * The leaders map such a file itself, and followers have a copy for each index (segment.c). A process that writes to it, whether it maps
 * it or not, does so in its turn, and what it has written goes to the copies in the same turn of every index.
 *
 *   agreed on ──► the baton was given, as before any call that may wait ──► the leader takes it again, and writes
 *     ──► the result has its ticket, and where the bytes went ──► followers wait for their turn, and store the same bytes
 *
 * Invariant: a copy holds what its leader's file holds whenever its index has its turn.
 *
 * Not covered: calls that change it in another way (ftruncate to another length, sendfile, splice): refused. A write that meets the
 * first mapping of the file, or is of a process that may not attach the copies any more: found as a difference.
 */
#include "agent.h"
#include <asm/errno.h>

#define SEEK_CUR 1
#define O_APPEND 02000u
#define F_GET_SEALS 1034
#define F_SEAL_SHRINK 2u
#define F_SEAL_GROW 4u
#define S_IFMT 0170000u
#define S_IFREG 0100000u

struct written {
	u64 ticket;
	u64 offset, bytes;
	u64 size; /* of a copy */
	s32 copy[SF_SLOTS_MAX];
};

/* Of the call in progress. */
static struct written last;
static int is_written_to;

/* The last file that was none of these, when there were so many. */
static struct {
	u64 dev, ino;
	u32 names;
} none;

static int at_a_place(u32 nr)
{
	return nr == NR_pwrite64 || nr == NR_pwritev;
}

static int is_plain_write(u32 nr)
{
	return nr == NR_write || nr == NR_writev || at_a_place(nr);
}

static u64 length_of(u64 fd)
{
	u64 st[18]; /* struct stat: st_size is word 6 */
	return sys2(NR_fstat, fd, st) == 0 ? st[6] : 0;
}

/* Where the bytes of a call have gone that has moved so many. */
static u64 went_to(u32 nr, const u64 a[6], u64 bytes)
{
	const u64 fd = (u32)a[0];
	if (sys3(NR_fcntl, fd, 3 /* F_GETFL */, 0) & O_APPEND)
		return length_of(fd) - bytes;
	return at_a_place(nr) ? a[3] : (u64)sys3(NR_lseek, fd, 0, SEEK_CUR) - bytes;
}

/* Each process that opens a shared memory object may set the length that it has; and seals forbid another one (fcntl(2)). */
static int keeps_the_file(u64 fd, u64 length, u64 wanted)
{
	const s64 seals = sys2(NR_fcntl, fd, F_GET_SEALS);
	const u32 forbids = wanted < length ? F_SEAL_SHRINK : F_SEAL_GROW;
	return wanted == length || (seals >= 0 && ((u32)seals & forbids));
}

/* Leader: makes a call that changes such a file. 0: it is none. */
int sf_written_makes(const struct sf_event *e, u32 nr, const u64 a[6], s64 *ret)
{
	struct sf_shared_file f = { .hold = -1 };
	u64 st[18];
	const s64 fd = sf_domain_changes(nr, a);
	is_written_to = 0;
	if (fd < 0 || nr == NR_mmap || sys2(NR_fstat, fd, st) < 0 || ((u32)st[3] & S_IFMT) != S_IFREG)
		return 0;
	f.dev = st[0];
	f.ino = st[1];
	if (f.dev == none.dev && f.ino == none.ino && sf_domain_names() == none.names)
		return 0;
	const u32 names = sf_domain_names();
	const int is = sf_segment_copies((u64)fd, &f);
	if (!is) {
		none.dev = f.dev;
		none.ino = f.ino;
		none.names = names;
	}
	if (!is || (nr == NR_ftruncate && keeps_the_file((u64)fd, st[6], a[1])))
		return 0;
	if (is < 0 || !is_plain_write(nr))
		sf_end(SF_E_REFUSED, SF_NR_SHARED_FILE, 0, me.regs);
	*ret = SF_NOT_MADE;
	if (!sf_domain_takes_turn())
		return 1;
	G->wrote_before = me.wrote;
	store(&G->wrote_seq, e->seq);
	*ret = sf_sys(nr, a[0], a[1], a[2], a[3], a[4], a[5]);
	last = (struct written){ .ticket = me.ticket, .size = f.size };
	memcpy(last.copy, f.copy, sizeof last.copy);
	if (*ret > 0) {
		me.wrote += (u64)*ret;
		last.bytes = (u64)*ret;
		last.offset = went_to(nr, a, last.bytes);
	}
	is_written_to = 1;
	return 1;
}

/* Leader: the result tells of it. */
void sf_written_tell(struct sf_result *r)
{
	if (likely(!is_written_to))
		return;
	is_written_to = 0;
	sf_result_bytes(r, &last, sizeof last);
	r->flags |= SF_R_SHARED;
}

static void store_part(const struct written *w, u64 *done, u64 base, u64 from, u64 n)
{
	const u64 at = w->offset + *done, left = w->bytes - *done;
	n = n < left ? n : left;
	*done += n;
	if (at < w->size)
		sf_user_bytes((void *)(base + at), from, n < w->size - at ? n : w->size - at);
}

/* A follower, whose turn it is, has the same bytes. 0: it cannot. */
static int store_all(const struct written *w, u32 nr, const u64 a[6])
{
	u64 v[2], done = 0;
	const s64 base = sf_sys(NR_shmat, (u64)w->copy[me.slot], 0, 0, 0, 0, 0);
	if (sf_failed(base))
		return 0;
	if (nr == NR_write || nr == NR_pwrite64)
		store_part(w, &done, (u64)base, a[1], a[2]);
	else
		for (u64 i = 0; i < a[2] && done < w->bytes && sf_user_bytes(v, a[1] + 16 * i, sizeof v) == 0; i++)
			store_part(w, &done, (u64)base, v[0], v[1]);
	sys1(NR_shmdt, base);
	return 1;
}

/* Every replica, with the result of a call that writes. */
void sf_written_done(const struct sf_result *r, u32 nr, const u64 a[6])
{
	struct written w;
	if (me.slot == 0 || me.role != SF_FOLLOWER || !is_plain_write(nr))
		return;
	memcpy(&w, PAYLOAD + r->out_off, sizeof w);
	sf_domain_awaits_turn(w.ticket);
	if (w.bytes && !store_all(&w, nr, a))
		me.poison |= SF_SPOILED;
}
