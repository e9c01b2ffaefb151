/*
 * Replicas of a C++ service whose state lies in guarded objects: how they are started, asked and ended.
 *
 *     steadfast::Arena<Account> accounts;
 *     steadfast::State state("Bank", {&accounts});
 *     steadfast::Replica replica(state, [&](std::string_view request, std::uint64_t time_ms) { return execute(request); },
 *                                steadfast::Options::from(argc, argv));
 *     replica.call("deposit alice 100");   // from any thread: the reply that won the vote
 *
 * Ground rules: those of <steadfast/crosscheck.h>. The function that executes runs in one thread, which the replica makes; only it touches
 * the objects. A service whose own threads change them is not replicated by this.
 */
#ifndef STEADFAST_REPLICAS_HPP
#define STEADFAST_REPLICAS_HPP

#include <steadfast/guarded.hpp>

#include <functional>
#include <stdexcept>
#include <unistd.h>

namespace steadfast {

/* There is no reply that has won a vote. The request may have been executed all the same. */
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string name = "service", peers, bind, secret_file, client, tls_cert, tls_key, tls_ca;
  std::uint64_t replica = 0, scrub_s = 600;

  /* Takes --replica N --peers LIST --secret-file FILE [--bind ADDRESS] [--scrub SECONDS]
   * [--tls-cert FILE --tls-key FILE --tls-ca FILE] out of a command line. */
  static Options from(int &argc, char **argv) {
    Options found;
    int kept = 1;
    for (int at = 1; at < argc; at++) {
      const std::string_view flag = argv[at];
      std::string *text = nullptr;
      for (auto [name, to] : {std::pair{"--peers", &found.peers},
                              {"--secret-file", &found.secret_file},
                              {"--bind", &found.bind},
                              {"--tls-cert", &found.tls_cert},
                              {"--tls-key", &found.tls_key},
                              {"--tls-ca", &found.tls_ca}})
        text = flag == name ? to : text;
      std::uint64_t *number = flag == "--replica" ? &found.replica : flag == "--scrub" ? &found.scrub_s : nullptr;
      if (!text && !number) {
        argv[kept++] = argv[at];
        continue;
      }
      if (at + 1 == argc)
        throw std::invalid_argument(std::string(flag) + ": requirement: a value; found: none");
      if (text)
        *text = argv[++at];
      else if (std::string_view value = argv[++at];
               value.empty() || value.find_first_not_of("0123456789") != value.npos || value.size() > 18)
        throw std::invalid_argument(std::string(flag) + ": requirement: a number; found: '" + std::string(value) + "'");
      else
        *number = std::stoull(std::string(value));
    }
    argv[argc = kept] = nullptr;
    return found;
  }
};

/* One replica of the service: this process. */
class Replica {
  using Execute = std::function<std::string(std::string_view request, std::uint64_t time_ms)>;
  using Told = std::function<void(const char *json)>;

  State &state;
  Execute execute;
  Told told;
  sf_cc_group *group = nullptr;

  static Replica &of(void *self) { return *static_cast<Replica *>(self); }

  /* The functions below are called from C: an exception that leaves one ends the process, since they are noexcept. */
  static void do_begin(void *self, std::uint64_t index) noexcept {
    for (AnyArena *arena : of(self).state.arenas)
      arena->begin(index);
  }
  static void do_execute(void *self, std::uint64_t time_ms, const std::uint8_t *request, std::size_t length, sf_cc_bytes *to) noexcept {
    const std::string reply = of(self).execute({reinterpret_cast<const char *>(request), length}, time_ms);
    sf_cc_put(to, reply.data(), reply.size());
  }
  static void do_end(void *self, sf_cc_objects *touched) noexcept {
    for (AnyArena *arena : of(self).state.arenas) {
      arena->finish(touched);
      for (const Found &found : arena->found())
        of(self).tell(found);
    }
  }
  static bool do_pack(void *self, sf_cc_u128 object, sf_cc_bytes *to) noexcept {
    std::string packed;
    const AnyArena *arena = of(self).state.owner(whole(object));
    const bool is_there = arena && arena->pack(whole(object), packed);
    sf_cc_put(to, packed.data(), packed.size());
    return is_there;
  }
  static bool do_intact(void *self, sf_cc_u128 object) noexcept {
    const AnyArena *arena = of(self).state.owner(whole(object));
    return !arena || arena->intact(whole(object));
  }
  static void do_replace(void *self, sf_cc_u128 object, const std::uint8_t *packed, std::size_t length) noexcept {
    const std::string_view bytes(reinterpret_cast<const char *>(packed), length);
    if (AnyArena *arena = of(self).state.owner(whole(object)))
      arena->replace(whole(object), packed ? &bytes : nullptr);
  }
  static void do_objects(void *self, sf_cc_objects *all) noexcept {
    for (const AnyArena *arena : of(self).state.arenas)
      arena->list(all);
  }
  static void do_look(void *self, sf_cc_u128 object) noexcept {
    if (AnyArena *arena = of(self).state.owner(whole(object)))
      arena->look(whole(object));
  }
  static void do_tell(void *self, const char *json) noexcept { of(self).told(json); }

  /* Which fields a guard has found wrong: what a repair of the object does not know. */
  void tell(const Found &found) {
    std::string line = "{\"event\":\"found\",\"kind\":\"" + found.kind + "\",\"fields\":[";
    for (const std::string &field : found.fields)
      line += (line.back() == '[' ? "\"" : ",\"") + field + "\"";
    told((line + "]}").c_str());
  }

public:
  /* Events go to standard error unless `told` takes them. A replica that can answer nobody any more ends the process with status 122. */
  Replica(State &state, Execute execute, const Options &options, Told told = print)
      : state(state), execute(std::move(execute)), told(std::move(told)) {
    sf_cc_options plain{};
    plain.name = options.name.c_str();
    plain.replica = options.replica;
    plain.peers = options.peers.c_str();
    auto given = [](const std::string &text) { return text.empty() ? nullptr : text.c_str(); };
    plain.bind = given(options.bind);
    plain.secret_file = given(options.secret_file);
    plain.tls_cert = given(options.tls_cert);
    plain.tls_key = given(options.tls_key);
    plain.tls_ca = given(options.tls_ca);
    plain.client = options.client.c_str();
    plain.scrub_s = options.scrub_s;
    sf_cc_service service{this, state.epoch(), do_begin, do_execute, do_end, do_pack, do_intact, do_replace, do_objects, do_look, do_tell};
    char error[1024] = "";
    group = sf_cc_start(&plain, &service, error, sizeof error);
    if (!group)
      throw std::runtime_error(error);
  }
  Replica(const Replica &) = delete;
  Replica &operator=(const Replica &) = delete;
  ~Replica() { sf_cc_stop(group); }

  /* The reply that won the vote. From any thread but that which executes. */
  std::string call(std::string_view request) { return taken(sf_cc_call(group, request.data(), request.size())); }
  /* What this replica is doing, as one JSON object. */
  std::string status() { return taken(sf_cc_status(group)); }

  static void print(const char *json) {
    std::fprintf(stderr, "steadfast: %s\n", json);
    if (std::string_view(json).rfind("{\"event\":\"ended\"", 0) == 0)
      _exit(122);
  }

private:
  static std::string taken(sf_cc_reply reply) {
    if (reply.refused)
      throw Refused(reply.refused);
    std::string bytes(reinterpret_cast<const char *>(reply.bytes), reply.length);
    sf_cc_free(reply);
    // From the copy that leaves, not from the bytes that it was made of.
    if (digest(bytes) != whole(reply.voted))
      throw Refused("a reply was corrupted after its vote");
    return bytes;
  }
};

} // namespace steadfast

#endif
