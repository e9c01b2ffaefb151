#include <steadfast/sei.h>
#include <atomic>
#include <cstdio>
#include <memory>
#include <string>
static std::atomic<long> n{1};
static std::atomic<bool> flag;
static std::shared_ptr<std::string> kept;
SF_LOCAL_HANDLER long handle(long k) {
  long was = n.load();
  int tries = 0;
  while (!n.compare_exchange_weak(was, was * 3 % 1000 + k))
    tries++;
  long other = -1;
  bool swapped = n.compare_exchange_strong(other, 0);
  n.fetch_add(2);
  flag.store(k % 2);
  bool before = flag.exchange(true);
  std::shared_ptr<std::string> mine = kept;
  kept = std::make_shared<std::string>(k % 40, 'x');
  return n * 10 + tries + swapped + before + other % 7 + (mine ? (long)mine->size() + mine.use_count() : 0);
}
int main() {
  for (long k = 0; k < 50; k++)
    std::printf("%ld %ld\n", handle(k), n.load());
}
