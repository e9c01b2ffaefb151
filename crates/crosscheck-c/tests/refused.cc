// Types of which the first alone compiles; the one that is meant is defined by name.

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <steadfast/guarded.hpp>

#if defined(ALL_NAMED)
struct A {
  int a = 0;
  int b = 0;
  STEADFAST_CRITICAL(A, a, b)
};
#elif defined(POINTER)
struct A {
  int *p = nullptr;
  STEADFAST_CRITICAL(A, p)
};
#elif defined(SHARED_POINTER)
struct A {
  std::shared_ptr<int> p;
  STEADFAST_CRITICAL(A, p)
};
#elif defined(FUNCTION)
struct A {
  std::function<int()> f;
  STEADFAST_CRITICAL(A, f)
};
#elif defined(CHAR)
struct A {
  char c = 0;
  STEADFAST_CRITICAL(A, c)
};
#elif defined(MUTEX)
struct A {
  std::mutex m;
  STEADFAST_CRITICAL(A, m)
};
#elif defined(VECTOR_OF_BITS)
struct A {
  std::vector<bool> v;
  STEADFAST_CRITICAL(A, v)
};
#elif defined(ONE_NOT_NAMED)
struct A {
  int a = 0;
  int b = 0;
  STEADFAST_CRITICAL(A, a)
};
#endif

steadfast::Arena<A> all;
