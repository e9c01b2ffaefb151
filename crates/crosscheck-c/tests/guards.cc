// What guards find and leave, case by case; the first that is wrong ends the program. With an argument a rule is broken, which must end it.
#include <steadfast/guarded.hpp>

#include <thread>

namespace {

struct Account {
  std::string owner;
  std::int64_t cents = 0;
  std::uint64_t reads = 0;
  STEADFAST_CRITICAL(Account, owner, cents)
  STEADFAST_SKIPPED("statistics: answers for one replica", reads)
};
using Accounts = steadfast::Arena<Account>;
const auto alice = steadfast::Ref<Account>::named("alice");

void must(bool holds, const char *what) {
  if (!holds) {
    std::fprintf(stderr, "it does not hold that %s\n", what);
    std::exit(1);
  }
}

std::vector<std::string> found(Accounts &accounts) {
  std::vector<std::string> fields;
  for (const steadfast::Found &one : accounts.found())
    fields.insert(fields.end(), one.fields.begin(), one.fields.end());
  return fields;
}
using Names = std::vector<std::string>;

void opened(Accounts &accounts) {
  accounts.begin(1);
  accounts.put(alice, Account{"alice", 1000, 7});
}

void silent_without_a_flip() {
  Accounts accounts;
  opened(accounts);
  for (int i = 0; i < 100; i++) {
    accounts.write(alice)->cents += i;
    accounts.write_only(alice, &Account::cents)->cents -= 1;
    must(accounts.read(alice)->owner == "alice", "a value is what was stored");
    accounts.raw(alice)->reads++;
  }
  must(accounts.intact(alice.id) && found(accounts).empty(), "nothing is found where nothing was hit");
}

void a_flip_is_found_and_stays_wrong() {
  Accounts accounts;
  opened(accounts);
  accounts.raw(alice)->cents ^= 1 << 5;
  must(!accounts.intact(alice.id), "a flip is seen");
  accounts.write(alice)->cents += 1;
  must(found(accounts) == Names{"cents"}, "the field is named");
  must(!accounts.intact(alice.id), "what was made from a wrong value does not look right");
  accounts.write(alice)->owner = "bob";
  must(!accounts.intact(alice.id), "nor does what was changed beside it");
  accounts.put(alice, Account{"alice", 1, 0});
  must(accounts.intact(alice.id), "a new value is right");
}

void a_field_that_was_not_named_keeps_its_digest() {
  Accounts accounts;
  opened(accounts);
  accounts.write_only(alice, &Account::cents)->owner = "mallory";
  must(!accounts.intact(alice.id), "a change to it is found");
}

void nested_guards_check_once_and_update_once() {
  Accounts accounts;
  opened(accounts);
  {
    auto outer = accounts.write(alice);
    outer->cents = 1;
    must(accounts.read(alice)->cents == 1, "a guard within another sees the change");
    accounts.write(alice)->cents = 2;
    outer->owner = "bob";
  }
  must(accounts.intact(alice.id) && found(accounts).empty(), "a change under several guards is tracked by the last to leave");
  accounts.raw(alice)->owner = "bod";
  auto outer = accounts.read(alice);
  must(found(accounts) == Names{"owner"}, "the first to enter checks");
}

void a_flip_under_readers_that_never_all_leave_is_found_within_the_bound() {
  Accounts accounts;
  opened(accounts);
  auto outer = accounts.read(alice);
  for (unsigned i = 0; i < 3 * steadfast::UNCHECKED_MAX; i++)
    must(accounts.read(alice)->cents == 1000, "a reader within another sees the value");
  must(found(accounts).empty(), "nothing is found where nothing was hit");
  accounts.raw(alice)->cents ^= 1 << 5;
  unsigned reads = 0;
  Names names;
  for (; names.empty() && reads <= steadfast::UNCHECKED_MAX; reads++) {
    (void)accounts.read(alice);
    names = found(accounts);
  }
  must(names == Names{"cents"} && reads <= steadfast::UNCHECKED_MAX, "a flip under readers is found within the bound");
}

void writers_inside_are_not_taken_for_a_flip() {
  Accounts accounts;
  opened(accounts);
  auto outer = accounts.write(alice);
  for (unsigned i = 0; i < 3 * steadfast::UNCHECKED_MAX; i++) {
    outer->cents++;
    (void)accounts.read(alice);
  }
  must(found(accounts).empty(), "a change that is under way is none");
}

void threads_that_share_an_object_leave_a_digest_that_fits() {
  Accounts accounts;
  opened(accounts);
  std::mutex order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&] {
      for (int k = 0; k < 2000; k++) {
        auto account = accounts.write(alice);
#ifndef UNORDERED
        std::lock_guard<std::mutex> held(order);
#endif
        account->cents++;
      }
    });
  for (std::thread &thread : threads)
    thread.join();
  must(accounts.raw(alice)->cents == 9000, "no change is lost");
  must(accounts.intact(alice.id) && found(accounts).empty(), "the last to leave tracks every change");
}

void a_repair_keeps_what_is_skipped_and_refuses_rubbish() {
  Accounts accounts;
  opened(accounts);
  std::string packed;
  must(accounts.pack(alice.id, packed), "an object packs");
  accounts.raw(alice)->cents = 5;
  const std::string_view right = packed, torn = right.substr(0, packed.size() - 1);
  accounts.replace(alice.id, &torn);
  must(accounts.raw(alice)->cents == 5, "torn bytes change nothing");
  accounts.replace(alice.id, &right);
  must(accounts.intact(alice.id) && accounts.raw(alice)->cents == 1000, "a repair makes it right");
  must(accounts.raw(alice)->reads == 7, "what is skipped stays");
  accounts.replace(alice.id, nullptr);
  must(!accounts.raw(alice) && !accounts.read(alice), "an object that others do not have ends");
  accounts.replace(alice.id, &right);
  must(accounts.read(alice)->owner == "alice", "one that is missing is made anew");
}

void exceptions_leave_what_was_stored() {
  Accounts accounts;
  opened(accounts);
  try {
    auto account = accounts.write(alice);
    account->cents = 3;
    throw 1;
  } catch (int) {
  }
  must(accounts.intact(alice.id) && accounts.read(alice)->cents == 3, "every replica throws alike, and votes on what is left");
}

} // namespace

// The log's side of an entry; this program has none.
int main(int argc, char **argv) {
  const std::string_view rule = argc > 1 ? argv[1] : "";
  Accounts accounts;
  opened(accounts);
  if (rule == "late") {
    auto account = accounts.write(alice);
    accounts.finish(nullptr);
  } else if (rule == "ended") {
    auto account = accounts.write(alice);
    accounts.remove(alice);
  } else if (rule == "none") {
    accounts.write(steadfast::Ref<Account>::named("nobody"))->cents = 1;
  } else {
    silent_without_a_flip();
    a_flip_is_found_and_stays_wrong();
    a_field_that_was_not_named_keeps_its_digest();
    nested_guards_check_once_and_update_once();
    a_flip_under_readers_that_never_all_leave_is_found_within_the_bound();
    writers_inside_are_not_taken_for_a_flip();
    threads_that_share_an_object_leave_a_digest_that_fits();
    a_repair_keeps_what_is_skipped_and_refuses_rubbish();
    exceptions_leave_what_was_stored();
  }
}
