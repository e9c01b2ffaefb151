/*
 * The one encoding of guarded values in C++: digests are made of it, repairs are sent in it. Included by <steadfast/guarded.hpp>.
 *
 * Invariants
 *  1. Equal values have equal bytes in every replica: fixed widths, little endian, no address, no padding, no order of a hash table.
 *  2. Names and bytes are those that Rust's types have: std::int64_t is i64, std::string is String, std::map is BTreeMap.
 *  3. What a value is made from takes all of its bytes; a length is compared with what is left before anything is reserved.
 *
 * Not covered: types without an encoding. They do not compile, and the message names the remedy. A std::string may hold bytes that are no
 * UTF-8; replicas in Rust would refuse them.
 */
#ifndef STEADFAST_ENCODING_HPP
#define STEADFAST_ENCODING_HPP

#include <steadfast/crosscheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace steadfast {

__extension__ typedef unsigned __int128 u128;

inline sf_cc_u128 halves(u128 number) { return {static_cast<std::uint64_t>(number), static_cast<std::uint64_t>(number >> 64)}; }
inline u128 whole(sf_cc_u128 halves) { return static_cast<u128>(halves.high) << 64 | halves.low; }
inline u128 digest(std::string_view bytes) { return whole(sf_cc_digest(bytes.data(), bytes.size())); }

/* FNV-1a of a name and of the shapes of its parts. */
inline std::uint64_t shape_of(std::string_view name, const std::vector<std::uint64_t> &parts = {}) {
  std::uint64_t sum = 0xcbf29ce484222325;
  auto add = [&sum](std::uint8_t byte) { sum = (sum ^ byte) * 0x100000001b3; };
  for (char letter : name)
    add(static_cast<std::uint8_t>(letter));
  for (std::uint64_t part : parts)
    for (int byte = 0; byte < 8; byte++)
      add(static_cast<std::uint8_t>(part >> 8 * byte));
  return sum;
}

/* Bytes that a value is made from. */
struct Bytes {
  std::string_view left;

  bool take(std::size_t length, std::string_view &taken) {
    if (length > left.size())
      return false;
    taken = left.substr(0, length);
    left.remove_prefix(length);
    return true;
  }
};

template <class N> void put_integer(N value, std::string &to) {
  for (std::size_t byte = 0; byte < sizeof(N); byte++)
    to.push_back(static_cast<char>(value >> 8 * byte));
}
template <class N> bool get_integer(N &value, Bytes &from) {
  std::string_view taken;
  if (!from.take(sizeof(N), taken))
    return false;
  value = 0;
  for (std::size_t byte = 0; byte < sizeof(N); byte++)
    value |= static_cast<N>(static_cast<unsigned char>(taken[byte])) << 8 * byte;
  return true;
}
/* No type here has values of no bytes, so a length beyond what is left is wrong. */
inline bool get_length(std::size_t &length, Bytes &from) {
  std::uint64_t found;
  if (!get_integer(found, from) || found > from.left.size())
    return false;
  length = found;
  return true;
}

template <class> inline constexpr bool no_type = false;

/* What a type is called, what its bytes mean, and the bytes. */
template <class T, class = void> struct encoding {
  static_assert(no_type<T>,
                "requirement: bytes that are the same in every replica; found: a type that has none "
                "(a pointer, a reference, a function, a lock, an atomic, a clock, a type of your own without STEADFAST_CRITICAL)\n"
                "  fix: own the value, or refer to another object with steadfast::Ref<T>\n"
                "  or:  STEADFAST_SKIPPED(\"why\", field), and nobody votes on the field or repairs it");
};

template <class T> struct encoding<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  static_assert(!std::is_same_v<T, char> && !std::is_same_v<T, wchar_t> && !std::is_same_v<T, char16_t> && !std::is_same_v<T, char32_t>,
                "requirement: a number of fixed width; found: a character\n  fix: std::uint8_t, or std::string");
  using Bits = std::make_unsigned_t<T>;
  static std::string name() { return (std::is_signed_v<T> ? "i" : "u") + std::to_string(8 * sizeof(T)); }
  static std::uint64_t shape() { return shape_of(name()); }
  static void put(T value, std::string &to) { put_integer(static_cast<Bits>(value), to); }
  static bool get(T &value, Bytes &from) {
    Bits bits;
    if (!get_integer(bits, from))
      return false;
    value = static_cast<T>(bits);
    return true;
  }
};

template <> struct encoding<bool> {
  static std::string name() { return "bool"; }
  static std::uint64_t shape() { return shape_of(name()); }
  static void put(bool value, std::string &to) { to.push_back(value ? 1 : 0); }
  static bool get(bool &value, Bytes &from) {
    std::uint8_t byte;
    if (!get_integer(byte, from) || byte > 1)
      return false;
    value = byte;
    return true;
  }
};

template <class T> struct encoding<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  static_assert(sizeof(T) <= 8, "requirement: float or double; found: long double, which has padding");
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  static std::string name() { return sizeof(T) == 4 ? "f32" : "f64"; }
  static std::uint64_t shape() { return shape_of(name()); }
  static void put(T value, std::string &to) {
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    // What a NaN carries besides depends on the instruction that made it.
    if (std::isnan(value))
      bits = static_cast<Bits>(sizeof(T) == 4 ? 0x7fc00000 : 0x7ff8000000000000);
    put_integer(bits, to);
  }
  static bool get(T &value, Bytes &from) {
    Bits bits;
    if (!get_integer(bits, from))
      return false;
    std::memcpy(&value, &bits, sizeof bits);
    return true;
  }
};

template <> struct encoding<std::string> {
  static std::string name() { return "String"; }
  static std::uint64_t shape() { return shape_of(name()); }
  static void put(const std::string &value, std::string &to) {
    put_integer<std::uint64_t>(value.size(), to);
    to += value;
  }
  static bool get(std::string &value, Bytes &from) {
    std::size_t length;
    std::string_view taken;
    if (!get_length(length, from) || !from.take(length, taken))
      return false;
    value = taken;
    return true;
  }
};

template <class T> struct encoding<std::optional<T>> {
  static std::string name() { return "Option<" + encoding<T>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("Option", {encoding<T>::shape()}); }
  static void put(const std::optional<T> &value, std::string &to) {
    encoding<bool>::put(value.has_value(), to);
    if (value)
      encoding<T>::put(*value, to);
  }
  static bool get(std::optional<T> &value, Bytes &from) {
    bool some;
    value.reset();
    return encoding<bool>::get(some, from) && (!some || encoding<T>::get(value.emplace(), from));
  }
};

template <class T, std::size_t N> struct encoding<std::array<T, N>> {
  static_assert(N > 0, "requirement: an array with something to vote on; found: one of no elements");
  static std::string name() { return "[" + encoding<T>::name() + "; " + std::to_string(N) + "]"; }
  static std::uint64_t shape() { return shape_of("array", {N, encoding<T>::shape()}); }
  static void put(const std::array<T, N> &value, std::string &to) {
    for (const T &one : value)
      encoding<T>::put(one, to);
  }
  static bool get(std::array<T, N> &value, Bytes &from) {
    return std::all_of(value.begin(), value.end(), [&](T &one) { return encoding<T>::get(one, from); });
  }
};

/* Elements one after another, in an order of their own. `insert` takes one that has been read. */
template <class C> void put_list(const C &values, std::string &to) {
  using T = std::decay_t<decltype(*values.begin())>;
  put_integer<std::uint64_t>(values.size(), to);
  for (const T &one : values)
    encoding<T>::put(one, to);
}
template <class T, class C, class Insert> bool get_list(C &values, Bytes &from, Insert insert) {
  std::size_t length;
  values.clear();
  if (!get_length(length, from))
    return false;
  for (std::size_t at = 0; at < length; at++) {
    T one{};
    if (!encoding<T>::get(one, from))
      return false;
    insert(std::move(one));
  }
  return values.size() == length;
}
/* Elements without an order are put into that of their bytes. */
template <class C> void put_sorted(const C &values, std::string &to) {
  using T = std::decay_t<decltype(*values.begin())>;
  std::vector<std::string> all;
  for (const T &one : values)
    encoding<T>::put(one, all.emplace_back());
  std::sort(all.begin(), all.end());
  put_integer<std::uint64_t>(all.size(), to);
  for (const std::string &one : all)
    to += one;
}

template <class T> struct encoding<std::vector<T>> {
  static_assert(!std::is_same_v<T, bool>,
                "requirement: elements with addresses; found: std::vector<bool>\n  fix: std::vector<std::uint8_t>");
  static std::string name() { return "Vec<" + encoding<T>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("Vec", {encoding<T>::shape()}); }
  static void put(const std::vector<T> &value, std::string &to) { put_list(value, to); }
  static bool get(std::vector<T> &value, Bytes &from) {
    return get_list<T>(value, from, [&](T &&one) { value.push_back(std::move(one)); });
  }
};
template <class T> struct encoding<std::deque<T>> {
  static std::string name() { return "VecDeque<" + encoding<T>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("Vec", {encoding<T>::shape()}); }
  static void put(const std::deque<T> &value, std::string &to) { put_list(value, to); }
  static bool get(std::deque<T> &value, Bytes &from) {
    return get_list<T>(value, from, [&](T &&one) { value.push_back(std::move(one)); });
  }
};
template <class T> struct encoding<std::set<T>> {
  static std::string name() { return "BTreeSet<" + encoding<T>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("Set", {encoding<T>::shape()}); }
  static void put(const std::set<T> &value, std::string &to) { put_list(value, to); }
  static bool get(std::set<T> &value, Bytes &from) {
    return get_list<T>(value, from, [&](T &&one) { value.insert(std::move(one)); });
  }
};
template <class T> struct encoding<std::unordered_set<T>> {
  static std::string name() { return "HashSet<" + encoding<T>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("HashSet", {encoding<T>::shape()}); }
  static void put(const std::unordered_set<T> &value, std::string &to) { put_sorted(value, to); }
  static bool get(std::unordered_set<T> &value, Bytes &from) {
    return get_list<T>(value, from, [&](T &&one) { value.insert(std::move(one)); });
  }
};

template <class K, class V> struct encoding<std::pair<K, V>> {
  using Free = std::pair<std::remove_const_t<K>, V>;
  using Key = encoding<std::remove_const_t<K>>;
  static std::string name() { return "(" + Key::name() + ", " + encoding<V>::name() + ")"; }
  static std::uint64_t shape() { return shape_of("tuple", {Key::shape(), encoding<V>::shape()}); }
  static void put(const std::pair<K, V> &value, std::string &to) {
    Key::put(value.first, to);
    encoding<V>::put(value.second, to);
  }
  static bool get(Free &value, Bytes &from) { return Key::get(value.first, from) && encoding<V>::get(value.second, from); }
};
template <class K, class V> struct encoding<std::map<K, V>> {
  using Entry = std::pair<K, V>;
  static std::string name() { return "BTreeMap<" + encoding<K>::name() + ", " + encoding<V>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("Map", {encoding<K>::shape(), encoding<V>::shape()}); }
  static void put(const std::map<K, V> &value, std::string &to) { put_list(value, to); }
  static bool get(std::map<K, V> &value, Bytes &from) {
    return get_list<Entry>(value, from, [&](Entry &&one) { value.insert(std::move(one)); });
  }
};
template <class K, class V> struct encoding<std::unordered_map<K, V>> {
  using Entry = std::pair<K, V>;
  static std::string name() { return "HashMap<" + encoding<K>::name() + ", " + encoding<V>::name() + ">"; }
  static std::uint64_t shape() { return shape_of("HashMap", {encoding<K>::shape(), encoding<V>::shape()}); }
  static void put(const std::unordered_map<K, V> &value, std::string &to) { put_sorted(value, to); }
  static bool get(std::unordered_map<K, V> &value, Bytes &from) {
    return get_list<Entry>(value, from, [&](Entry &&one) { value.insert(std::move(one)); });
  }
};

/* Types that name their fields. */
#define STEADFAST_CRITICAL(TYPE, ...)                               \
  static constexpr const char *sf_name() { return #TYPE; }          \
  static constexpr const char *sf_fields() { return #__VA_ARGS__; } \
  auto sf_tie() { return std::tie(__VA_ARGS__); }                   \
  auto sf_tie() const { return std::tie(__VA_ARGS__); }

#define STEADFAST_SKIPPED(WHY, ...)                                                                          \
  static constexpr const char *sf_why() {                                                                    \
    static_assert(sizeof(WHY) > 1, "requirement: the reason why nobody votes on these fields; found: none"); \
    return WHY;                                                                                              \
  }                                                                                                          \
  auto sf_skipped() { return std::tie(__VA_ARGS__); }

template <class T, class = void> inline constexpr bool is_critical = false;
template <class T> inline constexpr bool is_critical<T, std::void_t<decltype(T::sf_name())>> = true;
template <class T, class = void> inline constexpr bool has_skipped = false;
template <class T> inline constexpr bool has_skipped<T, std::void_t<decltype(T::sf_why())>> = true;

template <class T> using Fields = decltype(std::declval<T &>().sf_tie());
template <class T> inline constexpr std::size_t PROTECTED = std::tuple_size_v<Fields<T>>;
template <class T> constexpr std::size_t skipped_count() {
  if constexpr (has_skipped<T>)
    return std::tuple_size_v<decltype(std::declval<T &>().sf_skipped())>;
  return 0;
}

/* How many fields an aggregate has: as many as it can be made of values of. */
struct AnyField {
  std::size_t number;
  // Never called; defined, because a constructor that takes anything is compiled with it.
  template <class F> operator F() const { std::abort(); }
};
template <class T, class Numbers, class = void> inline constexpr bool takes = false;
template <class T, std::size_t... N>
inline constexpr bool takes<T, std::index_sequence<N...>, std::void_t<decltype(T{AnyField{N}...})>> = true;
template <class T, std::size_t N = 0> constexpr std::size_t aggregate_count() {
  if constexpr (takes<T, std::make_index_sequence<N + 1>>)
    return aggregate_count<T, N + 1>();
  return N;
}
template <class T> constexpr bool all_are_counted() {
  if constexpr (std::is_aggregate_v<T> && is_critical<T>)
    return aggregate_count<T>() == PROTECTED<T> + skipped_count<T>();
  return true;
}
template <class T> inline constexpr bool counts_all = all_are_counted<T>();

template <class T> const std::vector<std::string> &field_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> found(1);
    for (const char *letter = T::sf_fields(); *letter; letter++)
      if (*letter == ',')
        found.emplace_back();
      else if (*letter != ' ')
        found.back().push_back(*letter);
    return found;
  }();
  return names;
}

/* Calls `work` with the number and the value of each protected field. */
template <class T, class Work> void each_field(T &value, Work work) {
  std::apply(
      [&](auto &...fields) {
        std::size_t number = 0;
        (work(number++, fields), ...);
      },
      value.sf_tie());
}

template <class T> struct encoding<T, std::enable_if_t<is_critical<T>>> {
  static_assert(PROTECTED<T> > 0, "requirement: a field that is voted on; found: none");
  static std::string name() { return T::sf_name(); }
  static std::uint64_t shape() {
    static const std::uint64_t made = [] {
      std::string text = name() + "{";
      std::vector<std::uint64_t> parts;
      parts_of(static_cast<Fields<T> *>(nullptr), text, parts);
      return shape_of(text + "}", parts);
    }();
    return made;
  }
  static void put(const T &value, std::string &to) {
    each_field(value, [&](std::size_t, const auto &field) { encoding<std::decay_t<decltype(field)>>::put(field, to); });
  }
  static bool get(T &value, Bytes &from) {
    bool good = true;
    each_field(value, [&](std::size_t, auto &field) { good = good && encoding<std::decay_t<decltype(field)>>::get(field, from); });
    return good;
  }

private:
  template <class... F> static void parts_of(std::tuple<F &...> *, std::string &text, std::vector<std::uint64_t> &parts) {
    std::size_t number = 0;
    auto add = [&](std::string type, std::uint64_t shape) {
      text += (number ? "," : "") + field_names<T>()[number] + ":" + type;
      parts.push_back(shape);
      number++;
    };
    (add(encoding<F>::name(), encoding<F>::shape()), ...);
  }
};

/* Of one field: its number takes part, so that two fields cannot change places. */
template <class F> u128 digest_of_field(std::uint64_t shape, std::size_t number, const F &field) {
  std::string bytes, framed;
  encoding<F>::put(field, bytes);
  put_integer<std::uint64_t>(8, framed);
  put_integer<std::uint64_t>(shape, framed);
  put_integer<std::uint64_t>(8, framed);
  put_integer<std::uint64_t>(number, framed);
  put_integer<std::uint64_t>(bytes.size(), framed);
  return digest(framed + bytes);
}
template <class T> std::vector<u128> digests_of(const T &value) {
  std::vector<u128> all;
  each_field(value, [&](std::size_t number, const auto &field) { all.push_back(digest_of_field(encoding<T>::shape(), number, field)); });
  return all;
}
template <class T> u128 digest_of(const T &value, std::size_t wanted) {
  u128 found = 0;
  each_field(value, [&](std::size_t number, const auto &field) {
    if (number == wanted)
      found = digest_of_field(encoding<T>::shape(), number, field);
  });
  return found;
}

/* What these bytes say, all of them. */
template <class T> bool unpack(std::string_view packed, T &value) {
  Bytes from{packed};
  return encoding<T>::get(value, from) && from.left.empty();
}
template <class T> void keep_skipped(T &fresh, T &old) {
  if constexpr (has_skipped<T>)
    fresh.sf_skipped() = old.sf_skipped();
}
/* Which of the protected fields a pointer to a member names. */
template <class T, class F> std::size_t field_number(F T::*field) {
  T some{};
  std::size_t found = SIZE_MAX - 1;
  each_field(some, [&](std::size_t number, const auto &one) {
    if (static_cast<const void *>(&one) == static_cast<const void *>(&(some.*field)))
      found = number;
  });
  return found;
}

} // namespace steadfast

#endif
