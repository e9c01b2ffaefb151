// With `atomics-once`: a word that a handler reads and writes both plainly and by atomic operations, in any order: by its name, as a
// field, as an element, in a callee, and behind a pointer that a callee is handed.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

static long a, b;
static int narrow[4];
static std::shared_ptr<int> kept;
static std::weak_ptr<int> weak;
static long seen;

struct counter {
  const char *name;
  int hits;
  struct counter *next;
};
static struct counter last = {"last", 3, nullptr}, head = {"head", 5, &last};
static struct pair {
  long first, second;
} pair, *of_pair = &pair;
static long words[4], plain_first, *through = &words[3];
static long even, odd, *current = &odd, row[4];

__attribute__((noinline)) static long *chosen(long n) { return n & 1 ? &odd : &even; }

__attribute__((noinline)) static void add(long *word) { __atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST); }
__attribute__((noinline)) static long get(const long *word) { return *word; }
__attribute__((noinline)) static int hits(const struct counter *of) { return of->hits; }

static void read_first(long n) {
  long e = plain_first;
  seen += __atomic_compare_exchange_n(&plain_first, &e, e + 5, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  seen += pair.first * 5;
  __atomic_fetch_add(&of_pair->first, 3, __ATOMIC_SEQ_CST);
  seen += hits(&head) * 3;
  __atomic_fetch_add(&head.next->hits, 2, __ATOMIC_SEQ_CST);
  for (struct counter *c = &head; c; c = c->next)
    seen += c->hits + __atomic_fetch_add(&c->hits, 1, __ATOMIC_SEQ_CST);
  seen ^= get(&words[n & 1]);
  add(&words[n & 1]);
  seen += words[0] - words[1];
  add(&words[n & 1]);
  seen ^= *through << 3;
  add(through);
  seen += *through;
  *through += 7;
  seen += get(through) + __atomic_exchange_n(through, *through / 2, __ATOMIC_SEQ_CST);
  seen += *through;
}

// By pointers that have no name: from a condition, from a call, from memory, and one that goes along an array.
static void read_somewhere(long n) {
  long *p = n & 2 ? &even : &odd;
  seen += even - odd;
  __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
  seen ^= even + odd;
  __atomic_fetch_add(chosen(n), 2, __ATOMIC_SEQ_CST);
  seen += odd;
  __atomic_fetch_add(current, 5, __ATOMIC_SEQ_CST);
  for (long word : row)
    seen += word;
  for (long *q = row; q != row + 4; q++)
    __atomic_fetch_add(q, n, __ATOMIC_SEQ_CST);
}

extern "C" void handle(long n) {
  a = n;
  seen += __atomic_fetch_add(&a, 3, __ATOMIC_SEQ_CST);
  a += 2;
  seen += __atomic_add_fetch(&a, 1, __ATOMIC_SEQ_CST);
  __atomic_fetch_add(&b, 1, __ATOMIC_SEQ_CST);
  b = b * 3;
  long expected = b;
  seen += __atomic_compare_exchange_n(&b, &expected, b + 5, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
  memset(narrow, (int)n & 1, sizeof narrow);
  __atomic_fetch_add(&narrow[2], 7, __ATOMIC_SEQ_CST);
  __atomic_store_n(&narrow[1], (int)n, __ATOMIC_SEQ_CST);
  kept = std::make_shared<int>((int)n);
  weak = kept;
  for (int i = 0; i < 3; i++)
    if (auto held = weak.lock())
      seen += *held + held.use_count();
  read_first(n);
  read_somewhere(n);
}

int main() {
  for (long i = 0; i < 50; i++) {
    handle(i);
    std::printf("%ld %ld %d %d %d %d %ld\n", a, b, narrow[0], narrow[1], narrow[2], narrow[3], seen);
    std::printf("%ld %d %d %ld %ld %ld\n", plain_first, head.hits, last.hits, words[0], words[1], words[3]);
    std::printf("%ld %ld %ld\n", even, odd, row[3]);
  }
}
