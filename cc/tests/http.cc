// A small service on cpp-httplib as Debian packages it, written as such services are: routes are lambdas, the work is done
// by a class with maps, strings, a shared mutex and exceptions, and nothing in it knows about hardening. What is a handler
// says http.policy beside it.
//
// The library reads requests and sends replies outside handlers; it lies in a shared object and is not hardened.
#include <httplib.h>

#include <cstdio>
#include <functional>
#include <map>
#include <mutex>
#include <numeric>
#include <shared_mutex>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <vector>

namespace {

struct Unknown : std::runtime_error {
  explicit Unknown(const std::string &name) : std::runtime_error("no account " + name) {}
};

struct Account {
  long balance = 0;
  std::vector<long> history;
};

class Ledger {
  std::unordered_map<std::string, Account> accounts;
  std::map<long, std::string> by_size;
  mutable std::shared_mutex guard;
  std::function<void(Account &, long)> book = [this](Account &account, long amount) {
    if (account.balance + amount < 0)
      throw std::invalid_argument("not enough: " + std::to_string(account.balance));
    account.balance += amount;
    account.history.push_back(amount);
    total += amount;
  };
  long total = 0;

public:
  __attribute__((noinline)) void put(const std::string &name, const std::string &body, std::string &reply);
  __attribute__((noinline)) void get(const std::string &name, std::string &reply) const;
  __attribute__((noinline)) void erase(const std::string &name, std::string &reply);
  __attribute__((noinline)) void list(std::string &reply) const;
};

void Ledger::put(const std::string &name, const std::string &body, std::string &reply) {
  std::unique_lock<std::shared_mutex> held(guard);
  long amount = std::stol(body); // throws what is no number
  Account &account = accounts[name];
  by_size.erase(account.balance);
  book(account, amount);
  by_size[account.balance] = name;
  reply = name + " has " + std::to_string(account.balance) + " after " + std::to_string(account.history.size()) + "\n";
}

void Ledger::get(const std::string &name, std::string &reply) const {
  std::shared_lock<std::shared_mutex> held(guard);
  auto found = accounts.find(name);
  if (found == accounts.end())
    throw Unknown(name);
  const auto &history = found->second.history;
  reply = name + " " + std::to_string(std::accumulate(history.begin(), history.end(), 0L)) + "\n";
}

void Ledger::erase(const std::string &name, std::string &reply) {
  std::unique_lock<std::shared_mutex> held(guard);
  auto found = accounts.find(name);
  if (found == accounts.end())
    throw Unknown(name);
  total -= found->second.balance;
  by_size.erase(found->second.balance);
  accounts.erase(found);
  reply = "gone\n";
}

void Ledger::list(std::string &reply) const {
  std::shared_lock<std::shared_mutex> held(guard);
  reply.clear();
  for (const auto &[balance, name] : by_size)
    reply += std::to_string(balance) + " " + name + "\n";
  reply += "total " + std::to_string(total) + "\n";
}

} // namespace

// http [PORT]: with a port, one thread answers, and one connection may last; campaigns want runs that are alike.
int main(int argc, char **argv) {
  httplib::Server server;
  int port = argc > 1 ? std::stoi(argv[1]) : 0;
  if (port) {
    server.new_task_queue = [] { return new httplib::ThreadPool(1); };
    server.set_keep_alive_max_count(100000);
  }
  Ledger ledger;
  auto route = [](std::function<void(const httplib::Request &, std::string &)> work) {
    return [work](const httplib::Request &request, httplib::Response &response) {
      std::string reply;
      try {
        work(request, reply);
      } catch (const Unknown &why) {
        response.status = 404;
        reply = std::string(why.what()) + "\n";
      } catch (const std::logic_error &why) {
        response.status = 400;
        reply = std::string("refused: ") + why.what() + "\n";
      }
      response.set_content(reply, "text/plain");
    };
  };
  server.Put(R"(/account/(\w+))", route([&](auto &q, auto &reply) { ledger.put(q.matches[1], q.body, reply); }));
  server.Get(R"(/account/(\w+))", route([&](auto &q, auto &reply) { ledger.get(q.matches[1], reply); }));
  server.Delete(R"(/account/(\w+))", route([&](auto &q, auto &reply) { ledger.erase(q.matches[1], reply); }));
  server.Get("/list", route([&](auto &, auto &reply) { ledger.list(reply); }));
  if (port ? !server.bind_to_port("127.0.0.1", port) : (port = server.bind_to_any_port("127.0.0.1")) < 0)
    return 1;
  std::printf("%d\n", port);
  std::fflush(stdout);
  return server.listen_after_bind() ? 0 : 1;
}
