/*
 * Replicas of a C or C++ service: one order of requests for all of them, a vote on every object that a request touched before its
 * reply leaves, and repair. Three processes on three hosts call sf_cc_start() with the same list of peers; each then answers its own
 * clients by sf_cc_call(). C++ has <steadfast/guarded.hpp>, which fills sf_cc_service in.
 *
 *     sf_cc_call ──► log ──► begin, execute ..., end in every replica ──► vote ──► the reply
 *
 * Ground rules
 *  1. All functions of sf_cc_service are called by one thread, which sf_cc_start() makes. Nothing else may touch the objects.
 *  2. What execute stores and answers is a function of the objects, the request and time_ms: no clock, no random number, no thread.
 *  3. No function of sf_cc_service may call sf_cc_call(), sf_cc_status() or sf_cc_stop(): they wait for the thread that it runs in.
 *
 * Its other side is crates/crosscheck-c/src/lib.rs; sizes are compared there and here.
 */
#ifndef STEADFAST_CROSSCHECK_H
#define STEADFAST_CROSSCHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The number of an object, or a digest. */
typedef struct sf_cc_u128 {
  uint64_t low, high;
} sf_cc_u128;

/* Where a function of the service puts bytes. */
typedef struct sf_cc_bytes sf_cc_bytes;
/* Where it names objects. */
typedef struct sf_cc_objects sf_cc_objects;
/* One replica. */
typedef struct sf_cc_group sf_cc_group;

/* The service. `state` is given to each function. */
typedef struct sf_cc_service {
  void *state;
  /* What the types of its objects come to: replicas that differ in it are not compared. */
  uint64_t epoch;
  /* An entry of the log begins. */
  void (*begin)(void *state, uint64_t index);
  /* Executes one request; its reply goes to `reply`. time_ms is the leader's clock, and never goes back. */
  void (*execute)(void *state, uint64_t time_ms, const uint8_t *request, size_t length, sf_cc_bytes *reply);
  /* The entry is over: sf_cc_touched() for each object that it has touched, in the order of first access. */
  void (*end)(void *state, sf_cc_objects *touched);
  /* The object as bytes, the same in every replica; false if there is none. */
  bool (*pack)(void *state, sf_cc_u128 object, sf_cc_bytes *packed);
  /* Whether the digest that is stored with the object fits its bytes; true if there is none. */
  bool (*intact)(void *state, sf_cc_u128 object);
  /* Makes the object what these bytes say; ends it where they are NULL. Bytes that say nothing change nothing. */
  void (*replace)(void *state, sf_cc_u128 object, const uint8_t *packed, size_t length);
  /* sf_cc_touched() for every object, whatever digest is given. */
  void (*objects)(void *state, sf_cc_objects *all);
  /* Checks an object as an access would, and notes it in the entry. */
  void (*look)(void *state, sf_cc_u128 object);
  /* Something happened, as one JSON object (docs/guide/protect-cpp.md lists them). May be NULL. */
  void (*told)(void *state, const char *json);
} sf_cc_service;

/* How a replica is set up. Strings may end with the call. */
typedef struct sf_cc_options {
  /* The service's name: replicas of another one are refused. */
  const char *name;
  /* Which of the peers this is, counted from 0. */
  uint64_t replica;
  /* HOST:PORT of all replicas for each other, with commas between them: 3, 5 or 7, in the same order everywhere. */
  const char *peers;
  /* Where this replica listens for the others; NULL for its own address of `peers`. */
  const char *bind;
  /* A file with the secret of the group, closed to other users: `steadfast kv secret` makes one. */
  const char *secret_file;
  /* Where clients reach this replica; only shown. May be NULL. */
  const char *client;
  /* Seconds in which every object is compared once; 0 for never. */
  uint64_t scrub_s;
  /* PEM files: this replica's certificate, its key, and the authority of all. NULL for replicas that speak in the clear. */
  const char *tls_cert, *tls_key, *tls_ca;
} sf_cc_options;

/* A reply, or why there is none. */
typedef struct sf_cc_reply {
  /* NULL if there is none. */
  uint8_t *bytes;
  size_t length;
  /* What sf_cc_digest() of the bytes must be where they leave. */
  sf_cc_u128 voted;
  /* NULL if there is a reply. A text that stays. The request may have been executed all the same. */
  const char *refused;
} sf_cc_reply;

/* Adds bytes. */
void sf_cc_put(sf_cc_bytes *to, const void *bytes, size_t length);
/* Names an object. The digest is of its bytes, zero if it does not exist. at_rest: a stored digest did not fit when it was accessed. */
void sf_cc_touched(sf_cc_objects *to, sf_cc_u128 object, sf_cc_u128 digest, bool at_rest);
/* The digest that replicas compare: XXH3 of 128 bits. */
sf_cc_u128 sf_cc_digest(const void *bytes, size_t length);

/* Starts one replica; NULL if it cannot, with the requirement, what was found and the fix in `error`. */
sf_cc_group *sf_cc_start(const sf_cc_options *options, const sf_cc_service *service, char *error, size_t error_size);
/* Orders a request, and waits for its vote. From any thread. */
sf_cc_reply sf_cc_call(sf_cc_group *group, const void *request, size_t length);
/* Frees the bytes of a reply. */
void sf_cc_free(sf_cc_reply reply);
/* What the replica is doing, as one JSON object; `ready` is true when it answers. */
sf_cc_reply sf_cc_status(sf_cc_group *group);
/* Ends the replica. No other call may be under way. */
void sf_cc_stop(sf_cc_group *group);

#ifdef __cplusplus
}
static_assert(sizeof(sf_cc_u128) == 16 && sizeof(sf_cc_service) == 88, "shared with crates/crosscheck-c/src/lib.rs");
static_assert(sizeof(sf_cc_options) == 80 && sizeof(sf_cc_reply) == 40, "shared with crates/crosscheck-c/src/lib.rs");
#else
_Static_assert(sizeof(sf_cc_u128) == 16 && sizeof(sf_cc_service) == 88, "shared with crates/crosscheck-c/src/lib.rs");
_Static_assert(sizeof(sf_cc_options) == 80 && sizeof(sf_cc_reply) == 40, "shared with crates/crosscheck-c/src/lib.rs");
#endif

#endif
