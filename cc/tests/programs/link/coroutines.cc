#include <steadfast/sei.h>
#include <coroutine>
#include <cstdio>
#include <vector>
struct Task {
  struct promise_type {
    long value = 0;
    Task get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    std::suspend_always yield_value(long v) {
      value = v;
      return {};
    }
    void return_void() {}
    void unhandled_exception() {}
  };
  std::coroutine_handle<promise_type> handle;
};
static long total;
static std::vector<Task> tasks;
static Task count(long from, long by) {
  for (long n = from; n < from + 7 * by; n += by) {
    total += n;
    co_yield n *total;
  }
}
SF_LOCAL_HANDLER long handle(long k) {
  if (k % 5 == 0)
    tasks.push_back(count(k, k % 3 + 1));
  long sum = 0;
  for (Task &task : tasks)
    if (!task.handle.done()) {
      task.handle.resume();
      sum += task.handle.promise().value % 1000;
    }
  if (tasks.size() > 4) {
    tasks.front().handle.destroy();
    tasks.erase(tasks.begin());
  }
  return sum;
}
int main() {
  for (long k = 0; k < 60; k++)
    std::printf("%ld %ld\n", handle(k), total);
}
