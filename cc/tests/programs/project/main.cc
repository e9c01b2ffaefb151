#include <cstdio>
extern "C" long handle(long);
int main() {
  handle(3);
  std::printf("%ld\n", handle(4));
}
