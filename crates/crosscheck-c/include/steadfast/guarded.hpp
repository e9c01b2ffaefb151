/*
 * Objects of a C++ service that replicas vote on: each value with digests of its fields, behind guards. C++17; the digests come from
 * libsteadfast-crosscheck, which also orders and votes.
 *
 *     struct Account {
 *       std::string owner;
 *       std::int64_t cents = 0;
 *       std::uint64_t reads = 0;
 *       STEADFAST_CRITICAL(Account, owner, cents)
 *       STEADFAST_SKIPPED("statistics: answers for one replica", reads)
 *     };
 *
 *     read   ── first to enter: fields against their digests ──► const T &          noted in the entry's delta
 *     write  ── the same ──► T & ── last to leave: digests of what has changed
 *
 * Invariants
 *  1. Names, shapes, encoding, digests and object numbers are those of the crate steadfast-crosscheck (crates/crosscheck/src/guarded);
 *     crates/crosscheck-c/tests/same.rs compares the two.
 *  2. No guard is had without a check by the first that enters, and by every UNCHECKED_MAX-th while only readers are inside. Each access is
 *     noted.
 *  3. A field that did not fit its digest fits none after a write either, and nor does a field that was changed beside it. Only a vote, or
 *     a new value in its place, makes them fit.
 *  4. No guard is held beyond the end of its entry; one that is ends the process.
 *
 * Not covered: fields that are skipped, and what a service keeps outside its arenas. A class that is no aggregate (private fields, a
 * constructor) cannot be counted: there a field that is neither named nor skipped is left out in silence.
 */
#ifndef STEADFAST_GUARDED_HPP
#define STEADFAST_GUARDED_HPP

#include <steadfast/crosscheck.h>
#include <steadfast/encoding.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace steadfast {

/* A rule of this header is broken: going on would be unprotected. */
[[noreturn]] inline void broken(const char *rule, std::string_view found) {
  std::fprintf(stderr, "steadfast: requirement: %s; found: %.*s\n", rule, static_cast<int>(found.size()), found.data());
  std::abort();
}

/* An object's number is made of its type and of either a name, or the place in the log at which it was created. */
template <class T> inline u128 tag() {
  const std::uint64_t shape = encoding<T>::shape();
  return static_cast<u128>((shape ^ shape >> 32) & 0xffffffff) << 96;
}
inline constexpr u128 NAMED = static_cast<u128>(1) << 95;

/* A reference to an object: its number. The object itself is voted on alone. */
template <class T> struct Ref {
  u128 id = 0;

  static Ref named(std::string_view name) {
    std::string framed;
    encoding<std::string>::put(std::string(name), framed);
    return Ref{tag<T>() | NAMED | (digest(framed) & (NAMED - 1))};
  }
  static Ref created(std::uint64_t index, std::uint32_t ordinal) { return Ref{tag<T>() | (static_cast<u128>(index) << 32 | ordinal)}; }
  bool operator==(const Ref &other) const { return id == other.id; }
  bool operator!=(const Ref &other) const { return id != other.id; }
  bool operator<(const Ref &other) const { return id < other.id; }
};

template <class T> struct encoding<Ref<T>> {
  static std::string name() { return "Ref<" + encoding<T>::name() + ">"; }
  // Without the type behind it, which may refer back.
  static std::uint64_t shape() { return shape_of("Ref"); }
  static void put(const Ref<T> &value, std::string &to) { put_integer(value.id, to); }
  static bool get(Ref<T> &value, Bytes &from) { return get_integer(value.id, from); }
};

/* What was found wrong: protected fields whose bytes did not fit their digests. */
struct Found {
  u128 object;
  std::string kind;
  std::vector<std::string> fields;
};

/* Who enters while others are inside finds the check that the first has made; after so many the fields are checked again. */
inline constexpr unsigned UNCHECKED_MAX = 64;

/* A value and the digests of its fields, with the enter/leave counter. A lock is held while digests are computed, so that every change
 * is tracked by the last to leave; the paper's wait-free counter leaves some untracked, and bounds how many. */
template <class T> class Guarded {
  static_assert(is_critical<T>, "requirement: a type that names its protected fields; found: none\n"
                                "  fix: STEADFAST_CRITICAL(Type, field, ...) in the type");
  static_assert(counts_all<T>, "requirement: each field named or skipped; found: fewer or more than the type has\n"
                               "  fix: name it in STEADFAST_CRITICAL, or in STEADFAST_SKIPPED with the reason why nobody votes on it");
  using Digests = std::vector<u128>;

  T value;
  Digests stored, before;
  // The sum of the fields' digests: by it a hit digest is told from a hit field.
  u128 whole;
  std::mutex lock;
  unsigned inside = 0, unchecked = 0;
  bool dirty = false;
  std::vector<bool> wrong, declared;

  static u128 sum(const Digests &all) {
    u128 sum = 0;
    for (u128 one : all)
      sum += one;
    return sum;
  }
  bool spoilt() const { return std::find(wrong.begin(), wrong.end(), true) != wrong.end(); }
  std::vector<bool> compare(const Digests &now) const {
    std::vector<bool> found(now.size());
    if (sum(now) != whole)
      for (std::size_t field = 0; field < now.size(); field++)
        found[field] = now[field] != stored[field];
    return found;
  }

public:
  explicit Guarded(T value) : value(std::move(value)), stored(digests_of(this->value)), whole(sum(stored)) {}

  /* Fields that did not fit, as the first to enter has found. */
  const std::vector<bool> &enter(bool writes, std::size_t only = SIZE_MAX) {
    std::lock_guard<std::mutex> held(lock);
    // A writer that is inside may be changing what would be read here.
    const bool due = !dirty && ++unchecked >= UNCHECKED_MAX;
    if (inside++ == 0 || due) {
      unchecked = 0;
      before = digests_of(value);
      wrong = compare(before);
      declared.assign(before.size(), false);
      // If anything was hit it is a digest: which one does not matter.
      if (!spoilt())
        whole = sum(before);
    }
    dirty = dirty || writes;
    for (std::size_t field = 0; writes && field < declared.size(); field++)
      if (only == SIZE_MAX || only == field)
        declared[field] = true;
    return wrong;
  }
  void leave() {
    std::lock_guard<std::mutex> held(lock);
    if (--inside > 0 || !std::exchange(dirty, false))
      return;
    const bool doubtful = spoilt();
    for (std::size_t field = 0; field < stored.size(); field++) {
      // Not looked at where it was not declared: what it was stays on record, and tells of a change.
      if (!declared[field]) {
        if (!wrong[field])
          stored[field] = before[field];
        continue;
      }
      const u128 now = digest_of(value, field);
      stored[field] = wrong[field] || (doubtful && now != before[field]) ? ~now : now;
    }
    whole = sum(stored);
  }
  bool entered() const { return inside > 0; }
  T &get() { return value; }

  u128 digest() const {
    const u128 now = sum(digests_of(value));
    // An object that exists never has the digest of one that does not.
    return now ? now : 1;
  }
  std::vector<bool> check() const { return compare(digests_of(value)); }
  std::string pack() const {
    std::string bytes;
    encoding<T>::put(value, bytes);
    return bytes;
  }
  /* Puts what these bytes say in the place of the value, and keeps what is skipped; false if they say nothing. */
  bool replace(std::string_view packed) {
    T fresh{};
    if (!unpack(packed, fresh))
      return false;
    keep_skipped(fresh, value);
    value = std::move(fresh);
    stored = digests_of(value);
    whole = sum(stored);
    return true;
  }
  std::vector<std::string> names(const std::vector<bool> &fields) const {
    std::vector<std::string> found;
    for (std::size_t field = 0; field < fields.size(); field++)
      if (fields[field])
        found.push_back(field_names<T>()[field]);
    return found;
  }
};

/* An object for as long as it is used. Empty if there is none. */
template <class T, bool WRITES> class Guard {
  using Value = std::conditional_t<WRITES, T, const T>;
  Guarded<T> *of;

public:
  explicit Guard(Guarded<T> *of) : of(of) {}
  Guard(Guard &&other) noexcept : of(std::exchange(other.of, nullptr)) {}
  Guard(const Guard &) = delete;
  Guard &operator=(const Guard &) = delete;
  Guard &operator=(Guard &&) = delete;
  ~Guard() {
    if (of)
      of->leave();
  }
  explicit operator bool() const { return of; }
  Value *operator->() const { return &**this; }
  Value &operator*() const {
    if (!of)
      broken("a guard of an object that exists, asked before it is used", encoding<T>::name());
    return of->get();
  }
};

/* The objects of one type, as the vote sees them. */
class AnyArena {
public:
  virtual ~AnyArena() = default;
  virtual std::uint64_t shape() const = 0;
  virtual void begin(std::uint64_t index) = 0;
  virtual void finish(sf_cc_objects *touched) = 0;
  virtual bool owns(u128 object) const = 0;
  virtual bool pack(u128 object, std::string &packed) const = 0;
  virtual bool intact(u128 object) const = 0;
  virtual void replace(u128 object, const std::string_view *packed) = 0;
  virtual void list(sf_cc_objects *all) const = 0;
  virtual void look(u128 object) = 0;
  virtual std::vector<Found> found() = 0;
};

/* Where the objects of one type live, under numbers that are the same in every replica. */
template <class T> class Arena final : public AnyArena {
  using One = Guarded<T>;
  std::map<u128, std::unique_ptr<One>> all;
  std::uint64_t index = 0;
  std::uint32_t ordinal = 0;
  std::vector<std::pair<u128, bool>> touched;
  std::map<u128, std::size_t> touched_at;
  std::vector<Found> noted;
  mutable std::mutex lock;

  One *find(u128 id) const {
    auto at = all.find(id);
    return at == all.end() ? nullptr : at->second.get();
  }
  void note(u128 id, const One *one, const std::vector<bool> &wrong) {
    auto [at, is_new] = touched_at.try_emplace(id, touched.size());
    if (is_new)
      touched.emplace_back(id, false);
    const bool passive = std::find(wrong.begin(), wrong.end(), true) != wrong.end();
    if (passive && !std::exchange(touched[at->second].second, true))
      noted.push_back(Found{id, encoding<T>::name(), one->names(wrong)});
  }
  void end(u128 id) {
    auto at = all.find(id);
    if (at == all.end())
      return;
    if (at->second->entered())
      broken("an object ends after its guards", encoding<T>::name());
    all.erase(at);
  }
  template <bool WRITES> Guard<T, WRITES> open(Ref<T> ref, std::size_t only = SIZE_MAX) {
    std::lock_guard<std::mutex> held(lock);
    One *one = find(ref.id);
    note(ref.id, one, one ? one->enter(WRITES, only) : std::vector<bool>());
    return Guard<T, WRITES>(one);
  }

public:
  /* A new object with a number of its own, or a value that owes nothing to the one in whose place it comes. */
  Ref<T> create(T value) {
    Ref<T> ref = Ref<T>::created(index, ordinal++);
    put(ref, std::move(value));
    return ref;
  }
  void put(Ref<T> ref, T value) {
    std::lock_guard<std::mutex> held(lock);
    One *old = find(ref.id);
    note(ref.id, old, old ? old->check() : std::vector<bool>());
    end(ref.id);
    all.emplace(ref.id, std::make_unique<One>(std::move(value)));
  }
  /* The object ends; replicas vote on that, too. */
  bool remove(Ref<T> ref) {
    std::lock_guard<std::mutex> held(lock);
    One *old = find(ref.id);
    note(ref.id, old, old ? old->check() : std::vector<bool>());
    end(ref.id);
    return old;
  }
  Guard<T, false> read(Ref<T> ref) { return open<false>(ref); }
  Guard<T, true> write(Ref<T> ref) { return open<true>(ref); }
  /* For one field alone: another one that changes fits its digest no more. */
  template <class F> Guard<T, true> write_only(Ref<T> ref, F T::*field) { return open<true>(ref, field_number(field)); }
  /* References to all objects, in the order of their numbers. */
  std::vector<Ref<T>> refs() const {
    std::vector<Ref<T>> found;
    for (const auto &[id, one] : all)
      found.push_back(Ref<T>{id});
    return found;
  }
  /* The value behind its guards' back, for tests and injectors: what is changed here is a fault. */
  T *raw(Ref<T> ref) {
    One *one = find(ref.id);
    return one ? &one->get() : nullptr;
  }

  std::uint64_t shape() const override { return encoding<T>::shape(); }
  void begin(std::uint64_t now) override { index = now, ordinal = 0; }
  void finish(sf_cc_objects *to) override {
    for (auto [id, passive] : touched) {
      const One *one = find(id);
      if (one && one->entered())
        broken("no guard is held beyond the end of its entry", encoding<T>::name());
      sf_cc_touched(to, halves(id), halves(one ? one->digest() : 0), passive);
    }
    touched.clear();
    touched_at.clear();
  }
  bool owns(u128 id) const override { return id >> 96 == tag<T>() >> 96; }
  bool pack(u128 id, std::string &packed) const override {
    const One *one = find(id);
    if (one)
      packed = one->pack();
    return one;
  }
  bool intact(u128 id) const override {
    const One *one = find(id);
    const auto wrong = one ? one->check() : std::vector<bool>();
    return std::find(wrong.begin(), wrong.end(), true) == wrong.end();
  }
  void replace(u128 id, const std::string_view *packed) override {
    T fresh{};
    if (!packed)
      end(id);
    else if (One *one = find(id))
      one->replace(*packed);
    else if (unpack(*packed, fresh))
      all.emplace(id, std::make_unique<One>(std::move(fresh)));
  }
  void list(sf_cc_objects *to) const override {
    for (const auto &[id, one] : all)
      sf_cc_touched(to, halves(id), halves(one->digest()), false);
  }
  void look(u128 id) override { (void)read(Ref<T>{id}); }
  std::vector<Found> found() override { return std::exchange(noted, {}); }
};

/* All objects of a service. */
class State {
  std::string name;

public:
  std::vector<AnyArena *> arenas;

  State(std::string name, std::vector<AnyArena *> arenas) : name(std::move(name)), arenas(std::move(arenas)) {
    for (std::size_t one = 0; one < this->arenas.size(); one++)
      for (std::size_t two = 0; two < one; two++)
        if (tag_of(one) == tag_of(two))
          broken("types that differ, and so do their tags; rename one", this->name);
  }
  /* Replicas in which it differs are not compared. */
  std::uint64_t epoch() const {
    std::vector<std::uint64_t> shapes;
    for (const AnyArena *arena : arenas)
      shapes.push_back(arena->shape());
    return shape_of(name, shapes);
  }
  AnyArena *owner(u128 object) const {
    for (AnyArena *arena : arenas)
      if (arena->owns(object))
        return arena;
    return nullptr;
  }

private:
  std::uint64_t tag_of(std::size_t arena) const {
    const std::uint64_t shape = arenas[arena]->shape();
    return (shape ^ shape >> 32) & 0xffffffff;
  }
};

} // namespace steadfast

#endif
