/*
 * Allocators for containers of C++ whose memory is protected at rest (docs/concepts/hardening.md): steadfast::dup_allocator by copies,
 * steadfast::crc_allocator by checksums. Without --state they are std::allocator.
 *
 *     SF_DUP static std::map<int, long, std::less<int>, steadfast::dup_allocator<std::pair<const int, long>>> accounts;
 *
 * The annotation protects the container itself, the allocator what it allocates.
 */
#ifndef STEADFAST_ALLOCATOR_H
#define STEADFAST_ALLOCATOR_H

#include <steadfast/sei.h>

#include <memory>
#include <new>

#ifdef __cpp_aligned_new
#define SF_ALIGNED(T) (alignof(T) > __STDCPP_DEFAULT_NEW_ALIGNMENT__)
#define SF_NEW(T, BYTES) (SF_ALIGNED(T) ? ::operator new(BYTES, std::align_val_t(alignof(T))) : ::operator new(BYTES))
#define SF_DELETE(T, P) (SF_ALIGNED(T) ? ::operator delete(P, std::align_val_t(alignof(T))) : ::operator delete(P))
#else
#define SF_NEW(T, BYTES) ::operator new(BYTES)
#define SF_DELETE(T, P) ::operator delete(P)
#endif

namespace steadfast {

#define SF_ALLOCATOR(NAME, PROTECTED)                                           \
  template <class T> struct NAME {                                              \
    typedef T value_type;                                                       \
    NAME() {}                                                                   \
    template <class U> NAME(const NAME<U> &) {}                                 \
    PROTECTED T *allocate(std::size_t n) {                                      \
      if (n > static_cast<std::size_t>(-1) / sizeof(T))                         \
        throw std::bad_alloc();                                                 \
      return static_cast<T *>(SF_NEW(T, n * sizeof(T)));                        \
    }                                                                           \
    void deallocate(T *p, std::size_t) { SF_DELETE(T, p); }                     \
    template <class U> bool operator==(const NAME<U> &) const { return true; }  \
    template <class U> bool operator!=(const NAME<U> &) const { return false; } \
  };
SF_ALLOCATOR(dup_allocator, SF_DUP)
SF_ALLOCATOR(crc_allocator, SF_CRC)
#undef SF_ALLOCATOR
#undef SF_NEW
#undef SF_DELETE
#undef SF_ALIGNED

} // namespace steadfast

#endif
