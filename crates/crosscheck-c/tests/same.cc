// Prints what <steadfast/guarded.hpp> makes of a few values, a line each: packed bytes, digest, shape, number. tests/same.rs, which has
// the same values in Rust, compares. With an argument it reads packed bytes, and prints them as they come back.
#include <steadfast/guarded.hpp>

#include <iostream>
#include <limits>

namespace {

struct Transfer {
  std::int64_t cents = 0;
  STEADFAST_CRITICAL(Transfer, cents)
};

struct Inner {
  std::uint8_t a = 0;
  double b = 0;
  STEADFAST_CRITICAL(Inner, a, b)
};

struct Account {
  std::string owner;
  std::int64_t cents = 0;
  std::optional<steadfast::Ref<Transfer>> last;
  std::vector<std::int64_t> history;
  std::map<std::int64_t, std::string> by_size;
  std::unordered_map<std::string, std::uint16_t> loose;
  std::array<std::uint8_t, 4> four{};
  std::pair<bool, float> pair{};
  std::deque<Inner> queue;
  std::set<std::int32_t> set;
  std::uint64_t reads = 0;
  STEADFAST_CRITICAL(Account, owner, cents, last, history, by_size, loose, four, pair, queue, set)
  STEADFAST_SKIPPED("statistics: answers for one replica", reads)
};

std::string hex(std::string_view bytes) {
  static const char digits[] = "0123456789abcdef";
  std::string text;
  for (unsigned char byte : bytes)
    (text += digits[byte >> 4]) += digits[byte & 15];
  return text;
}
std::string hex(steadfast::u128 number) {
  std::string bytes;
  for (int byte = 15; byte >= 0; byte--)
    bytes.push_back(static_cast<char>(number >> 8 * byte));
  return hex(bytes);
}

void print(const Account &account) {
  steadfast::Guarded<Account> guarded(account);
  std::cout << hex(guarded.pack()) << ' ' << hex(guarded.digest());
  for (steadfast::u128 field : steadfast::digests_of(account))
    std::cout << ' ' << hex(field);
  std::cout << '\n';
}

std::vector<Account> values() {
  Account empty, full, odd;
  full.owner = "alice";
  full.cents = -1234;
  full.last = steadfast::Ref<Transfer>::created(77, 3);
  full.history = {1, -2, std::numeric_limits<std::int64_t>::min()};
  full.by_size = {{-5, "five"}, {7, "seven"}};
  for (int i = 0; i < 20; i++)
    full.loose["k" + std::to_string(i)] = static_cast<std::uint16_t>(i);
  full.four = {1, 2, 3, 255};
  full.pair = {true, 1.5f};
  full.queue = {{1, -0.0}, {2, std::numeric_limits<double>::quiet_NaN()}};
  full.set = {3, -1, 2};
  full.reads = 99;
  odd.owner = "gr\xc3\xbc\xc3\x9f dich";
  odd.pair = {false, -std::numeric_limits<float>::quiet_NaN()};
  odd.last = steadfast::Ref<Transfer>::named("t");
  return {empty, full, odd};
}

int from_hex(char digit) { return digit <= '9' ? digit - '0' : digit - 'a' + 10; }

} // namespace

int main(int argc, char **argv) {
  for (int at = 1; at < argc; at++) {
    std::string bytes;
    for (const char *digit = argv[at]; *digit; digit += 2)
      bytes.push_back(static_cast<char>(from_hex(digit[0]) << 4 | from_hex(digit[1])));
    Account account;
    if (steadfast::unpack(bytes, account))
      print(account);
    else
      std::cout << "no value\n";
  }
  if (argc > 1)
    return 0;
  for (const Account &account : values())
    print(account);
  steadfast::Arena<Account> accounts;
  steadfast::Arena<Transfer> transfers;
  steadfast::State state("Bank", {&accounts, &transfers});
  std::cout << std::hex << steadfast::encoding<Account>::shape() << ' ' << state.epoch() << ' '
            << hex(steadfast::Ref<Account>::named("alice").id) << ' ' << hex(steadfast::Ref<Transfer>::created(77, 3).id) << '\n';
}
