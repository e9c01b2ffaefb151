// Exceptions that stay inside a handler and that leave it, containers, strings, lambdas, virtual calls, streams.
#include <steadfast/sei.h>

#include <any>
#include <cstdio>
#include <cstring>
#include <functional>
#include <iomanip>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <vector>

namespace {

struct Shape {
  virtual ~Shape() = default;
  virtual int area() const = 0;
};
struct Square : Shape {
  int side;
  explicit Square(int s) : side(s) {}
  int area() const override { return side * side; }
};
struct Line : Shape {
  int area() const override { return 0; }
};

struct Odd : std::exception {
  std::string why;
  explicit Odd(int n) : why("an odd number, and a text that is too long to lie in the string itself: " + std::to_string(n)) {}
  const char *what() const noexcept override { return why.c_str(); }
};

std::vector<int> numbers;
std::map<int, std::string> names;
std::vector<std::unique_ptr<Shape>> shapes;
int caught, destroyed;

struct Guard {
  ~Guard() { ++destroyed; }
};

int half(int n) {
  Guard guard;
  if (n % 2)
    throw Odd(n);
  return n / 2;
}

} // namespace

SF_LOCAL_HANDLER int inside(int n) {
  numbers.push_back(n);
  names[n % 7] += std::string("name of ") + std::to_string(n) + ", ";
  if (n % 3 == 0)
    shapes.push_back(std::make_unique<Square>(n));
  else
    shapes.push_back(std::make_unique<Line>());
  int sum = 0;
  for (auto &shape : shapes)
    sum += shape->area();
  auto add = [&sum](int k) { sum += k; };
  for (int k : numbers)
    add(k);
  try {
    sum += half(n);
  } catch (const Odd &odd) {
    ++caught;
    sum += (int)odd.why.size();
  }
  if (numbers.size() > 50)
    numbers.erase(numbers.begin(), numbers.begin() + 25);
  return sum;
}

SF_LOCAL_HANDLER int leaves(int n) {
  numbers.push_back(-n);
  return half(n) + 1;
}

/* Nothing to clean up here, and an exception all the same. */
struct Plain {};
SF_LOCAL_HANDLER int only_throws(int n) {
  if (n % 4 == 1)
    throw Plain();
  return n;
}

/* Trees and lists that grow and shrink at random: the library's own code rotates their nodes. */
std::map<unsigned, unsigned> tree;
std::multiset<unsigned> sizes;
std::list<unsigned> order;
SF_LOCAL_HANDLER unsigned grow_and_shrink(unsigned random, unsigned keep) {
  unsigned key = random % 700;
  if (random >> 16 & 1 || tree.size() < keep) {
    tree[key] += random;
    sizes.insert(key % 97);
    order.push_front(key);
  } else {
    auto next = tree.lower_bound(key);
    if (next != tree.end())
      tree.erase(next);
    sizes.erase(sizes.begin());
    if (sizes.count(key % 97))
      sizes.erase(sizes.find(key % 97));
    order.pop_back();
    if (order.size() > 3)
      order.splice(order.begin(), order, std::prev(order.end()));
  }
  unsigned sum = static_cast<unsigned>(sizes.size());
  for (auto &[k, v] : tree)
    sum = sum * 31 + k + v;
  return order.empty() ? sum : sum + order.front();
}

/* What passes through temporaries: holes of a structure are copied with it, into memory that outlives the handler. */
struct Field {
  const char *name;
  std::size_t length;
  unsigned char flags;
};
std::vector<Field> fields;
__attribute__((noinline)) Field field(const char *name, unsigned char flags) { return {name, std::strlen(name), flags}; }
__attribute__((noinline)) int dirty(int n) {
  volatile char bytes[512]; // leaves something where the next temporary lies, and not the same in both runs' order
  for (auto &byte : bytes)
    byte = static_cast<char>(n | 1);
  return bytes[n & 511];
}
SF_LOCAL_HANDLER int temporaries(int n) {
  fields.push_back(field("first", 0));
  int sum = dirty(n);
  fields.push_back(field("second", 1));
  fields.push_back(field("third", 2));
  return sum + static_cast<int>(fields.size());
}

/* Streams of the C library's, numbers, manipulators; what a class of the library says about itself, behind a pointer. */
SF_LOCAL_HANDLER int streams(int n) {
  std::cout << "stream " << n << ' ' << -1L * n << ' ' << 0.5 * n << ' ' << (n % 2 == 0) << std::setw(5) << n << std::endl;
  try {
    return numbers.at(static_cast<std::size_t>(n) * 1000);
  } catch (const std::exception &e) {
    std::cout << typeid(e).name() << ' ' << std::strlen(e.what()) << '\n' << std::flush;
  }
  return n;
}

/* An exception of the library whose class is not inline at -O0. */
SF_LOCAL_HANDLER int any(int i) {
  std::any a = i;
  int n = std::any_cast<int>(a);
  try {
    n += static_cast<int>(std::any_cast<double>(a));
  } catch (const std::bad_any_cast &e) {
    n += e.what()[0];
  }
  return n;
}

/* Loops that fill memory, before and behind an exception that is caught. */
SF_LOCAL_HANDLER unsigned filled(unsigned n) {
  std::vector<unsigned> before(4 + n % 40, n);
  unsigned sum = 0;
  try {
    sum += static_cast<unsigned>(half(static_cast<int>(n)));
  } catch (const Odd &) {
    sum++;
  }
  std::vector<unsigned> behind(4 + n % 30, sum);
  for (unsigned each : before)
    sum += each;
  for (unsigned each : behind)
    sum += each;
  return sum;
}

int main(int arguments, char **) {
  if (arguments > 1)
    return leaves(1); // nobody catches it
  unsigned random = 1, sum = 0;
  for (unsigned i = 0; i < 2400; i++) {
    random = random * 1664525 + 1013904223; // Knuth's generator modulo 2^32
    sum = sum * 31 + grow_and_shrink(random >> 4, i % 1200 < 700 ? 200 : 0);
  }
  std::printf("trees %u %zu %zu %zu\n", sum, tree.size(), sizes.size(), order.size());
  for (int i = 0; i < 100; i++) {
    std::printf("%d\n", inside(i));
    std::printf("%d\n", temporaries(i));
    std::printf("%d\n", streams(i + 1));
    std::printf("%d\n", any(i));
    std::printf("%u\n", filled(static_cast<unsigned>(i)));
    try {
      std::printf("%d\n", leaves(i));
    } catch (const std::exception &e) {
      std::printf("left: %s\n", e.what());
    }
  }
  int plain = 0;
  for (int i = 0; i < 100; i++)
    try {
      only_throws(i);
    } catch (const Plain &) {
      plain++;
      if (sf_run() != 0)
        std::printf("still in a handler\n");
    }
  std::printf("plain %d\n", plain);
  std::printf("caught %d destroyed %d names %s\n", caught, destroyed, names[3].c_str());
}
