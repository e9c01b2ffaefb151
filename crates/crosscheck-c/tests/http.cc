// A small service on cpp-httplib as Debian packages it, written as such services are: routes are lambdas, the work is done
// by a class with maps, strings and exceptions. This is cc/tests/http.cc as three replicas that vote on its accounts: what
// differs from it is what the port took, and tests/service.rs counts the lines.
//
// A thread of the library takes a request, the replica orders it, and one thread of every replica executes it.
#include <httplib.h>
#include <steadfast/replicas.hpp>

#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Unknown : std::runtime_error {
  explicit Unknown(const std::string &name) : std::runtime_error("no account " + name) {}
};

struct Account {
  long balance = 0;
  std::vector<long> history;
  STEADFAST_CRITICAL(Account, balance, history)
};

struct Index {
  std::map<long, std::string> by_size;
  long total = 0;
  STEADFAST_CRITICAL(Index, by_size, total)
};

using Name = steadfast::Ref<Account>;
const auto THE = steadfast::Ref<Index>::named("index");

class Ledger {
  mutable steadfast::Arena<Account> accounts;
  mutable steadfast::Arena<Index> indexes;
  std::function<void(Account &, Index &, long)> book = [](Account &account, Index &index, long amount) {
    if (account.balance + amount < 0)
      throw std::invalid_argument("not enough: " + std::to_string(account.balance));
    account.balance += amount;
    account.history.push_back(amount);
    index.total += amount;
  };

public:
  steadfast::State state{"Ledger", {&accounts, &indexes}};
  std::string execute(std::string_view request);

private:
  __attribute__((noinline)) void put(const std::string &name, const std::string &body, std::string &reply);
  __attribute__((noinline)) void get(const std::string &name, std::string &reply) const;
  __attribute__((noinline)) void erase(const std::string &name, std::string &reply);
  __attribute__((noinline)) void list(std::string &reply) const;
};

void Ledger::put(const std::string &name, const std::string &body, std::string &reply) {
  long amount = std::stol(body); // throws what is no number
  if (!accounts.read(Name::named(name)))
    accounts.put(Name::named(name), Account{});
  if (!indexes.read(THE))
    indexes.put(THE, Index{});
  auto account = accounts.write(Name::named(name));
  auto index = indexes.write(THE);
  index->by_size.erase(account->balance);
  book(*account, *index, amount);
  index->by_size[account->balance] = name;
  reply = name + " has " + std::to_string(account->balance) + " after " + std::to_string(account->history.size()) + "\n";
}

void Ledger::get(const std::string &name, std::string &reply) const {
  auto found = accounts.read(Name::named(name));
  if (!found)
    throw Unknown(name);
  const auto &history = found->history;
  reply = name + " " + std::to_string(std::accumulate(history.begin(), history.end(), 0L)) + "\n";
}

void Ledger::erase(const std::string &name, std::string &reply) {
  const long balance = [&] {
    auto found = accounts.read(Name::named(name));
    if (!found)
      throw Unknown(name);
    return found->balance;
  }();
  auto index = indexes.write(THE);
  index->total -= balance;
  index->by_size.erase(balance);
  accounts.remove(Name::named(name));
  reply = "gone\n";
}

void Ledger::list(std::string &reply) const {
  reply.clear();
  auto index = indexes.read(THE);
  if (index)
    for (const auto &[balance, name] : index->by_size)
      reply += std::to_string(balance) + " " + name + "\n";
  reply += "total " + std::to_string(index ? index->total : 0) + "\n";
}

// A request is VERB NAME BODY, with line ends between them; a reply begins with its status.
std::string Ledger::execute(std::string_view request) {
  std::istringstream lines{std::string(request)};
  std::string verb, name, body, reply, status = "200";
  std::getline(std::getline(std::getline(lines, verb), name), body, '\0');
  try {
    if (verb == "put")
      put(name, body, reply);
    else if (verb == "get")
      get(name, reply);
    else if (verb == "erase")
      erase(name, reply);
    else
      list(reply);
  } catch (const Unknown &why) {
    status = "404";
    reply = std::string(why.what()) + "\n";
  } catch (const std::logic_error &why) {
    status = "400";
    reply = std::string("refused: ") + why.what() + "\n";
  }
  return status + reply;
}

} // namespace

// http --replica N --peers LIST --secret-file FILE [PORT]
int main(int argc, char **argv) try {
  httplib::Server server;
  auto options = steadfast::Options::from(argc, argv);
  options.name = "ledger";
  int port = argc > 1 ? std::stoi(argv[1]) : 0;
  Ledger ledger;
  steadfast::Replica replica(ledger.state, [&](std::string_view request, std::uint64_t) { return ledger.execute(request); }, options);
  auto route = [&](std::string verb) {
    return [&replica, verb](const httplib::Request &request, httplib::Response &response) {
      try {
        std::string name = request.matches.size() > 1 ? request.matches[1].str() : "";
        std::string reply = replica.call(verb + "\n" + name + "\n" + request.body);
        response.status = std::stoi(reply.substr(0, 3));
        response.set_content(reply.substr(3), "text/plain");
      } catch (const steadfast::Refused &why) {
        response.status = 503;
        response.set_content(std::string(why.what()) + "\n", "text/plain");
      }
    };
  };
  server.Put(R"(/account/(\w+))", route("put"));
  server.Get(R"(/account/(\w+))", route("get"));
  server.Delete(R"(/account/(\w+))", route("erase"));
  server.Get("/list", route("list"));
  server.Get("/status", [&](auto &, auto &response) { response.set_content(replica.status(), "application/json"); });
  if (port ? !server.bind_to_port("127.0.0.1", port) : (port = server.bind_to_any_port("127.0.0.1")) < 0)
    return 1;
  std::printf("%d\n", port);
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
} catch (const std::exception &why) {
  std::fprintf(stderr, "http: %s\n", why.what());
  return 121;
}
