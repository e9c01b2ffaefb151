// C++: variables of functions, one for each thread and for all, memory of wide alignment, lists turned round, thunks,
// pointers to members, and names that mean something to the C library.
#include <steadfast/sei.h>

#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace {

int made, unmade;

struct Counted {
  std::string name;
  explicit Counted(const char *n) : name(n) { ++made; }
  ~Counted() { ++unmade; }
};

const std::map<int, std::string> &words() {
  static const std::map<int, std::string> all = {{1, "one"}, {2, "two, and a text that does not lie in the string itself"}, {3, "three"}};
  return all;
}

Counted &lazy(int k) {
  static Counted first("the first"), second("the second");
  return k % 2 ? first : second;
}

struct Fails {
  int tries;
  explicit Fails(int k) : tries(k) {
    if (k % 3 == 0)
      throw std::runtime_error("not yet");
  }
};
Fails &sometimes(int k) {
  static Fails made_at(k);
  return made_at;
}

struct alignas(128) Wide {
  std::uint64_t words[4];
};

struct Left {
  virtual ~Left() = default;
  virtual int left() { return 1; }
};
struct Right {
  virtual ~Right() = default;
  virtual int right(int k) = 0;
  int state = 0;
};
struct Base : virtual Right {
  int right(int k) override { return state += k; }
};
struct Both : Left, Base {
  int right(int k) override { return state += 2 * k; }
  int left() override { return state -= 1; }
};

std::list<int> numbers;
std::vector<Wide *> wides;
Both both;
Base base;
thread_local Counted own("a thread's own");

} // namespace

SF_LOCAL_HANDLER long statics(int k) {
  long sum = static_cast<long>(words().at(k % 3 + 1).size()) + static_cast<long>(lazy(k).name.size());
  lazy(k).name += '.';
  own.name += static_cast<char>('a' + k % 26);
  try {
    sum += sometimes(k).tries;
  } catch (const std::runtime_error &why) {
    sum += why.what()[0];
  }
  return sum + made * 10 + static_cast<long>(own.name.size()) +
         std::make_error_code(std::errc::io_error).value();
}

SF_LOCAL_HANDLER long memory(int k) {
  Wide *w = new Wide{{static_cast<std::uint64_t>(k), 1, 2, 3}};
  long sum = reinterpret_cast<std::uintptr_t>(w) % 128 == 0;
  wides.push_back(w);
  if (wides.size() > 5) {
    sum += static_cast<long>(wides.front()->words[0]);
    delete wides.front();
    wides.erase(wides.begin());
  }
  Wide *many = new (std::nothrow) Wide[3]();
  many[k % 3].words[0] = 5;
  sum += static_cast<long>(many[k % 3].words[0] + many[(k + 1) % 3].words[1]);
  delete[] many;
  return sum;
}

SF_LOCAL_HANDLER long objects(int k) {
  numbers.push_front(k * 7919 % 100);
  numbers.sort();
  if (k % 3 == 0)
    numbers.reverse();
  if (numbers.size() > 20)
    numbers.remove_if([k](int n) { return n % 3 == k % 3; });
  long sum = 0;
  for (int n : numbers)
    sum = sum * 3 + n;
  int (Right::*turn)(int) = &Right::right;
  Right *which = k % 2 ? static_cast<Right *>(&both) : &base;
  Left *left = &both;
  return sum % 100000 + (which->*turn)(k) + left->left();
}

int main() {
  for (int k = 0; k < 60; k++)
    std::printf("%ld %ld %ld\n", statics(k), memory(k), objects(k));
  std::thread([] { std::printf("%ld\n", statics(7)); }).join();
  std::printf("%d %d\n", made, unmade);
  return 0;
}
