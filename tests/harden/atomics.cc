// With `atomics-once`: a word that a handler writes both plainly and by atomic operations, in any order.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

static long a, b;
static int narrow[4];
static std::shared_ptr<int> kept;
static std::weak_ptr<int> weak;
static long seen;

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
}

int main() {
  for (long i = 0; i < 50; i++) {
    handle(i);
    std::printf("%ld %ld %d %d %d %d %ld\n", a, b, narrow[0], narrow[1], narrow[2], narrow[3], seen);
  }
}
