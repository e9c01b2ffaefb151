#include <steadfast/sei.h>
#include <memory_resource>
#include <vector>
unsigned long size;
SF_LOCAL_HANDLER void handle(int n) {
  std::pmr::monotonic_buffer_resource pool;
  std::pmr::vector<int> v(n, 1, &pool);
  size = v.size();
}
int main() { handle(3); }
