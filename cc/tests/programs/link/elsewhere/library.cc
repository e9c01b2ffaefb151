#include <cstdlib>
#include <new>
void *operator new(std::size_t n) {
  auto *p = (unsigned long *)std::calloc(1, n + 16);
  return p + 2;
}
void operator delete(void *p) noexcept {
  if (p)
    std::free((unsigned long *)p - 2);
}
void operator delete(void *p, std::size_t) noexcept { operator delete(p); }
