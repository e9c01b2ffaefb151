#include <steadfast/sei.h>
#include <cstdio>
#include <map>
#include <new>
#include <string>
#include <vector>
extern long live, calls;
struct alignas(64) Wide {
  long a[8];
};
static std::map<long, std::string> names;
static std::vector<long *> kept;
static Wide *wide;
SF_LOCAL_HANDLER long handle(long k) {
  names[k % 7] = std::string(k % 90, 'x');
  kept.push_back(new long[k % 5 + 1]{k});
  if (kept.size() > 6) {
    delete[] kept.front();
    kept.erase(kept.begin());
  }
  if (long *one = new (std::nothrow) long(k))
    delete one;
  delete wide;
  wide = new Wide{{k}};
  names.erase(k % 3);
  return (long)names.size() + live + calls + wide->a[0];
}
int main() {
  for (long k = 0; k < 40; k++) {
    std::printf("%ld %ld %ld\n", handle(k), live, calls);
    if (k % 8 == 7) {
      delete[] kept.back();
      kept.back() = new long[3]{k};
    }
  }
}
