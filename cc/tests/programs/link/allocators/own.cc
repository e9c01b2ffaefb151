#include <cstdlib>
#include <new>
#ifdef ATOMIC
#include <atomic>
long live;
std::atomic<long> calls;
#else
long live, calls;
#endif
struct Head {
  unsigned long magic, bytes;
};
void *operator new(std::size_t n) {
  calls++;
  auto *head = (Head *)std::malloc(n + sizeof(Head));
  if (!head)
    throw std::bad_alloc();
  *head = {0x5afe, n};
  live += (long)n;
  return head + 1;
}
void operator delete(void *p) noexcept {
  if (!p)
    return;
  Head *head = (Head *)p - 1;
  if (head->magic != 0x5afe)
    std::abort();
  live -= (long)head->bytes;
  std::free(head);
}
void operator delete(void *p, std::size_t) noexcept { operator delete(p); }
