/*
 * Memory for protected state: blocks with a copy, and blocks with checksums, in two ranges of addresses of their own.
 *
 * The C library cannot give it out: objects of either kind must be told from all others by their address alone, at every
 * load of hardened code.
 *
 *     small   up to 2 KiB: sizes 16, 32, 48, 64, then four steps to each doubling; runs of 64 KiB of one size
 *     large   multiples of 4 KiB; freed ones are kept by their number of pages, and cut when none fits
 *
 * Invariants
 *  1. A block never straddles two kinds; its size is known from its address (sf_heap_block).
 *  2. What describes blocks lies in memory of its own: a wild store of the program reaches blocks only.
 *  3. A block of checksummed memory begins a cell, so no two blocks share one.
 *
 * Not covered: memory is reused, never given back to the kernel. The description itself is trusted.
 */
#define _GNU_SOURCE
#include "state.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#define PAGE 4096ull
#define RUN (16 * PAGE)
#define STEP (4ull << 20) /* made accessible at a time */
#define SMALL 2048
#define SIZES 40

/* Of a page: 0 never given out, or 1 + its size class, or LARGE. `index`: in a large block, pages before this one. */
#define LARGE 255
struct page {
  uint8_t size_class;
  uint32_t index;
  uint32_t count; /* in the first page of a large block: how many */
};

struct free_block {
  uintptr_t at;
  size_t pages;
};

static struct heap {
  uintptr_t base, next, usable;
  struct page *pages;
  uintptr_t *free_small[SIZES]; /* stacks of addresses, beside the blocks: freed memory keeps what it held */
  size_t free_count[SIZES], free_room[SIZES];
  struct free_block *free_large;
  size_t large_count, large_room;
} heaps[2];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint16_t sizes[SIZES];
static int size_count;

static void *reserve_heap(uintptr_t at, size_t bytes, int accessible) {
  long r = sf_syscall(9 /* mmap */, (long)at, (long)bytes, accessible ? 3 : 0,
                      0x22 | 0x4000 /* NORESERVE */ | (at ? 0x100000 /* FIXED_NOREPLACE */ : 0), -1, 0);
  if (r == -EEXIST || (at && r > 0 && (uintptr_t)r != at))
    sf_stop("the addresses for protected state are taken", "run the program without what maps memory at 0x140000000000");
  if (r < 0 && r > -4096)
    sf_stop("addresses for protected state are needed, the kernel gives none: 200 GiB are reserved, not used",
            "raise the limit of the address space (ulimit -v unlimited), and of overcommitment");
  return (void *)r;
}

void *sf_state_reserve(uintptr_t at, size_t bytes, int accessible) { return reserve_heap(at, bytes, accessible); }

static void hold_heap(void) { pthread_mutex_lock(&lock); }
static void release_heap(void) { pthread_mutex_unlock(&lock); }

__attribute__((constructor(103))) static void prepare_heap(void) {
  pthread_atfork(hold_heap, release_heap, release_heap); /* after keeps.c's */
  for (int s = 16; s <= 64; s += 16)
    sizes[size_count++] = (uint16_t)s;
  for (int s = 64; s < SMALL; s *= 2)
    for (int k = 1; k <= 4; k++)
      sizes[size_count++] = (uint16_t)(s + k * s / 4);
  for (int kind = SF_DUP; kind <= SF_CRC; kind++) {
    struct heap *h = &heaps[kind];
    h->base = h->next = h->usable = kind == SF_DUP ? SF_DUP_BASE : SF_CRC_BASE;
    reserve_heap(h->base, SF_KIND_BYTES, 0);
    if (kind == SF_DUP)
      reserve_heap(h->base + SF_COPY, SF_KIND_BYTES, 0);
    else
      reserve_heap((uintptr_t)sf_check_of(h->base), SF_KIND_BYTES / SF_CELL * sizeof(uint32_t), 1);
    reserve_heap((uintptr_t)sf_mark_of(h->base), SF_KIND_BYTES / SF_GRAIN, 1);
    reserve_heap((uintptr_t)sf_sum_of(h->base), SF_KIND_BYTES / SF_GRAIN * sizeof(uint32_t), 1);
    h->pages = reserve_heap(0, SF_KIND_BYTES / PAGE * sizeof *h->pages, 1);
  }
}

/* Room for one more in a list of ours. */
static void *longer(void *list, size_t size, size_t *room) {
  size_t more = *room ? 2 * *room : PAGE / size;
  uint8_t *new = sf_map(more * size);
  if (list) {
    sf_copy(new, list, *room * size);
    sf_unmap(list, *room * size);
  }
  *room = more;
  return new;
}

/* Pages that were never used; nothing if all are. */
static uintptr_t fresh(struct heap *h, int kind, size_t bytes) {
  if (bytes > h->base + SF_KIND_BYTES - h->next)
    return 0;
  uintptr_t at = h->next;
  if (at + bytes > h->usable) {
    size_t more = (at + bytes - h->usable + STEP - 1) / STEP * STEP;
    if (sf_syscall(10 /* mprotect */, (long)h->usable, (long)more, 3, 0, 0, 0) != 0 ||
        (kind == SF_DUP && sf_syscall(10, (long)(h->usable + SF_COPY), (long)more, 3, 0, 0, 0) != 0))
      return 0;
    h->usable += more;
  }
  h->next += bytes;
  return at;
}

static struct page *page_of_heap(struct heap *h, uintptr_t at) { return h->pages + (at - h->base) / PAGE; }

static void describe(struct heap *h, uintptr_t at, size_t pages) {
  for (size_t i = 0; i < pages; i++)
    *page_of_heap(h, at + i * PAGE) = (struct page){.size_class = LARGE, .index = (uint32_t)i, .count = (uint32_t)pages};
}

static uintptr_t take_large(struct heap *h, int kind, size_t pages) {
  size_t best = SIZE_MAX;
  for (size_t i = 0; i < h->large_count; i++)
    if (h->free_large[i].pages >= pages && (best == SIZE_MAX || h->free_large[i].pages < h->free_large[best].pages))
      best = i;
  uintptr_t at;
  if (best != SIZE_MAX) {
    struct free_block *f = &h->free_large[best];
    at = f->at;
    if (f->pages > pages) {
      f->at += pages * PAGE;
      f->pages -= pages;
    } else {
      *f = h->free_large[--h->large_count];
    }
  } else if ((at = fresh(h, kind, pages * PAGE)) == 0) {
    return 0;
  }
  describe(h, at, pages);
  return at;
}

/* With checksums: of what the memory holds when it is given out first, which is zeroes. */
static void first_checks(uintptr_t at, size_t bytes) {
  for (uintptr_t cell = at; cell < at + bytes; cell += SF_CELL)
    *sf_check_of(cell) = sf_cell_crc(cell);
}

void *sf_heap_take(enum sf_kind kind, size_t alignment, size_t bytes) {
  struct heap *h = &heaps[kind];
  if (bytes < 16)
    bytes = 16;
  if (kind == SF_CRC && alignment < SF_CELL)
    alignment = SF_CELL;
  if (alignment > PAGE || bytes > SF_KIND_BYTES / 2) {
    errno = ENOMEM;
    return NULL;
  }
  if (alignment > 16)
    bytes = (bytes + alignment - 1) & ~(alignment - 1);
  uintptr_t at = 0;
  pthread_mutex_lock(&lock);
  int size_class = 0;
  while (size_class < size_count && (sizes[size_class] < bytes || sizes[size_class] % alignment != 0))
    size_class++;
  if (size_class < size_count) {
    if (h->free_count[size_class] == 0) {
      uintptr_t run = fresh(h, (int)kind, RUN);
      if (run) {
        for (size_t i = 0; i < RUN / PAGE; i++)
          *page_of_heap(h, run + i * PAGE) = (struct page){.size_class = (uint8_t)(1 + size_class), .index = (uint32_t)i};
        if (kind == SF_CRC)
          first_checks(run, RUN);
        for (size_t k = RUN / sizes[size_class]; k-- > 0;) {
          if (h->free_count[size_class] == h->free_room[size_class])
            h->free_small[size_class] = longer(h->free_small[size_class], sizeof(uintptr_t), &h->free_room[size_class]);
          h->free_small[size_class][h->free_count[size_class]++] = run + k * sizes[size_class];
        }
      }
    }
    if (h->free_count[size_class])
      at = h->free_small[size_class][--h->free_count[size_class]];
  } else {
    uintptr_t before = h->next;
    at = take_large(h, (int)kind, (bytes + PAGE - 1) / PAGE);
    if (at && kind == SF_CRC && at >= before)
      first_checks(at, h->next - at);
  }
  pthread_mutex_unlock(&lock);
  if (!at)
    errno = ENOMEM;
  return (void *)at;
}

struct sf_span sf_heap_block(uintptr_t at) {
  struct heap *h = &heaps[at >= SF_CRC_BASE];
  struct page *p = page_of_heap(h, at);
  if (p->size_class == LARGE) {
    uintptr_t begin = (at & ~(PAGE - 1)) - p->index * PAGE;
    return (struct sf_span){begin, page_of_heap(h, begin)->count * PAGE};
  }
  if (p->size_class == 0)
    return (struct sf_span){0};
  uintptr_t run = (at & ~(PAGE - 1)) - p->index * PAGE;
  size_t size = sizes[p->size_class - 1];
  return (struct sf_span){run + (at - run) / size * size, size};
}

uintptr_t sf_heap_end(enum sf_kind kind) { return heaps[kind].next; }

size_t sf_heap_size(const void *p) {
  struct sf_span b = sf_heap_block((uintptr_t)p);
  return b.at == (uintptr_t)p ? b.length : 0;
}

void sf_heap_free(void *p) {
  uintptr_t at = (uintptr_t)p;
  struct heap *h = &heaps[at >= SF_CRC_BASE];
  pthread_mutex_lock(&lock);
  struct sf_span b = sf_heap_block(at);
  if (b.at != at || b.length == 0)
    sf_differ("memory is freed that was not given out", at, b.at, b.length);
  sf_kept_end(b);
  struct page *page = page_of_heap(h, at);
  if (page->size_class == LARGE) {
    if (h->large_count == h->large_room)
      h->free_large = longer(h->free_large, sizeof *h->free_large, &h->large_room);
    h->free_large[h->large_count++] = (struct free_block){at, b.length / PAGE};
  } else {
    int size_class = page->size_class - 1;
    if (h->free_count[size_class] == h->free_room[size_class])
      h->free_small[size_class] = longer(h->free_small[size_class], sizeof(uintptr_t), &h->free_room[size_class]);
    h->free_small[size_class][h->free_count[size_class]++] = at;
  }
  pthread_mutex_unlock(&lock);
}
