/*
 * A small bank whose state is in containers of C++, protected at rest: accounts in a tree, their names in a hash table, what
 * happened in a list and a vector, fees in objects with virtual functions. It handles a fixed list of requests and prints
 * what it answers.
 *
 *     state [PLACE REQUEST BIT]    before that request one bit of PLACE is changed, as memory would: by nobody's store
 *
 * Places: money, link (a node of the tree: its value, the pointer to its left child), item (a node of the list), table (a
 * bucket of the hash table), root (the tree's header), fee (a pointer to virtual functions), text (a long name), none. With
 * _copy behind it, the same in the copy.
 */
#include <steadfast/allocator.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

template <class T> using Kept = steadfast::dup_allocator<T>;
using Text = std::basic_string<char, std::char_traits<char>, Kept<char>>;

struct Fee {
  SF_DUP static void *operator new(std::size_t n) { return ::operator new(n); }
  static void operator delete(void *p) { ::operator delete(p); }
  virtual ~Fee() = default;
  virtual long of(long amount) const = 0;
};
struct Flat : Fee {
  long fee;
  explicit Flat(long fee) : fee(fee) {}
  long of(long) const override { return fee; }
};
struct Share : Fee {
  long percent;
  explicit Share(long percent) : percent(percent) {}
  long of(long amount) const override { return amount * percent / 100; }
};

struct Account {
  Text owner;
  long money = 0;
  std::unique_ptr<Fee> fee;
  std::set<long, std::less<long>, Kept<long>> partners;
};

struct Hash {
  std::size_t operator()(const Text &text) const { return std::hash<std::string_view>()(std::string_view(text.data(), text.size())); }
};

struct Bank {
  std::map<long, Account, std::less<long>, Kept<std::pair<const long, Account>>> accounts;
  std::unordered_map<Text, long, Hash, std::equal_to<Text>, Kept<std::pair<const Text, long>>> names;
  std::list<Text, Kept<Text>> journal;
  std::vector<long, Kept<long>> amounts;
};

SF_DUP static Bank bank;
SF_CRC static long limit = 900;
SF_CRC static std::vector<long, steadfast::crc_allocator<long>> turns;

static Text name_of(long number) {
  return Text(number % 3 == 0 ? "a name that does not fit into the string itself, number " : "n") + Text(std::to_string(number).c_str());
}

static void open(long number) {
  Account &account = bank.accounts[number];
  account.owner = name_of(number);
  account.money = number * 10;
  if (number % 2)
    account.fee = std::make_unique<Share>(number % 7);
  else
    account.fee.reset(new Flat(number % 5));
  bank.names[account.owner] = number;
}

static void close(long number) {
  auto at = bank.accounts.find(number);
  if (at == bank.accounts.end())
    throw std::out_of_range("no account " + std::to_string(number));
  bank.names.erase(at->second.owner);
  bank.accounts.erase(at);
}

static long move(long from, long to, long amount) {
  if (amount > limit)
    throw std::runtime_error("more than the limit");
  Account &giver = bank.accounts.at(from), &taker = bank.accounts.at(to);
  long fee = giver.fee->of(amount);
  giver.money -= amount + fee;
  taker.money += amount;
  giver.partners.insert(to);
  if (giver.partners.size() > 4)
    giver.partners.erase(giver.partners.begin());
  bank.amounts.push_back(amount);
  bank.journal.push_back(giver.owner + Text(" to ") + taker.owner);
  if (bank.journal.size() > 12)
    bank.journal.pop_front();
  if (amount % 11 == 0)
    bank.journal.reverse();
  return fee;
}

static unsigned long look() {
  unsigned long sum = 17;
  auto add = [&](unsigned long word) { sum = sum * 1000003 + word; };
  for (const auto &[number, account] : bank.accounts) {
    add(number), add(account.money), add(account.owner.size()), add(account.fee->of(1000));
    for (long partner : account.partners)
      add(partner);
  }
  for (auto at = bank.accounts.rbegin(); at != bank.accounts.rend(); ++at)
    add(bank.names.at(at->second.owner));
  for (const Text &line : bank.journal)
    for (char c : line)
      add(c);
  for (long amount : bank.amounts)
    add(amount);
  return sum;
}

SF_HANDLER long handle(const char *request, std::size_t length) {
  sf_input_edge(request, length);
  long a = 0, b = 0, c = 0;
  char verb = request[0];
  char *at = nullptr;
  a = std::strtol(request + 1, &at, 10);
  b = std::strtol(at, &at, 10);
  c = std::strtol(at, &at, 10);
  turns.push_back(a);
  try {
    switch (verb) {
    case 'o':
      open(a);
      return std::printf("open %ld, %zu accounts\n", a, bank.accounts.size());
    case 'c':
      close(a);
      return std::printf("closed %ld\n", a);
    case 'm':
      return std::printf("moved, fee %ld\n", move(a, b, c));
    default:
      return std::printf("%lx after %zu turns\n", look(), turns.size());
    }
  } catch (const std::exception &e) {
    return std::printf("refused: %s\n", e.what());
  }
}

static void flip(const void *at, bool copy, unsigned bit) {
  char *byte = (char *)at + (copy ? 1ul << 44 : 0) + bit / 8;
  __asm__ volatile("xorb %1, (%0)" : : "r"(byte), "q"((char)(1 << bit % 8)) : "memory");
}

static void strike(const char *place, unsigned bit) {
  bool copy = std::strstr(place, "_copy") != nullptr;
  auto is = [&](const char *name) { return std::strncmp(place, name, std::strlen(name)) == 0; };
  auto middle = bank.accounts.begin();
  for (std::size_t i = 0; i < bank.accounts.size() / 2; i++)
    ++middle;
  if (is("money"))
    flip(&middle->second.money, copy, bit);
  else if (is("link"))
    flip((char *)&*middle - 16, copy, bit);
  else if (is("item"))
    flip((char *)&bank.journal.front() - 16, copy, bit);
  else if (is("table"))
    flip(*(void **)&bank.names, copy, bit);
  else if (is("root"))
    flip((char *)&bank.accounts + 16, copy, bit);
  else if (is("fee"))
    flip(middle->second.fee.get(), copy, bit);
  else if (is("text"))
    flip(bank.accounts.begin()->second.owner.data(), copy, bit);
}

int main(int argc, char **argv) {
  unsigned long state = 99;
  auto random = [&](unsigned long below) {
    state = state * 6364136223846793005ul + 1442695040888963407ul;
    return (state >> 33) % below;
  };
  for (long number = 0; number < 9; number++)
    open(3 * number); // outside handlers, too
  for (int n = 0; n < 700; n++) {
    if (argc > 3 && n == std::atoi(argv[2]))
      strike(argv[1], (unsigned)std::atoi(argv[3]));
    char request[80];
    unsigned long kind = random(10);
    if (n % 20 == 5)
      std::snprintf(request, sizeof request, "l");
    else if (kind < 3)
      std::snprintf(request, sizeof request, "o%lu", random(60));
    else if (kind < 5)
      std::snprintf(request, sizeof request, "c%lu", random(60));
    else
      std::snprintf(request, sizeof request, "m%lu %lu %lu", 3 * random(20), 3 * random(20), random(1000));
    handle(request, std::strlen(request));
    if (n % 50 == 49) {
      close(bank.accounts.begin()->first);
      bank.amounts.clear();
      std::printf("by hand: %lx, %zu lines\n", look(), bank.journal.size());
    }
  }
  sf_scrub(0);
  return 0;
}
