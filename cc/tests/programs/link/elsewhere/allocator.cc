#include <cstddef>
#include <new>
extern "C" void *__libc_malloc(std::size_t);
extern "C" void __libc_free(void *);
extern "C" void *malloc(std::size_t n) { return __libc_malloc(n); }
extern "C" void free(void *p) { __libc_free(p); }
void *operator new(std::size_t n) { return malloc(n); }
void operator delete(void *p) noexcept { free(p); }
void operator delete(void *p, std::size_t) noexcept { free(p); }
