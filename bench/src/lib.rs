//! Bench: every published number as a command.
//!
//! | Command | Number |
//! |---|---|
//! | `bench spec` | cost of protecting whole programs, against bare and against co-running copies |
//! | `bench micro` | cost added per system call, clock read and rdtsc |
//! | `bench touch` | touching 800 MB, 4 KiB against huge pages |
//! | `bench repair` | how long a repair holds the program up; how late faults are detected |
//! | `bench memory` | memory of N replicas against N copies |
//! | `bench start` | what starting under protection costs |
//! | `bench trees` | children and threads: a spawn, `make -j2`, a switch between threads, a free mutex, programs with two threads |
//! | `bench servers` | redis, nginx, Go's net/http, memcached and PostgreSQL under load, with two replicas |
//! | `bench server-flips` | flips in these, with clients that check every reply and every acknowledged write |
//! | `bench sei` | one hardened handler: empty, stores, copies, against the same compiled plain |
//! | `bench rest` | state at rest with copies and checksums: cost, and which changed bits get out |
//! | `bench later` | a handler whose second run comes later, beside the other ways |
//! | `bench sei-servers` | memcached and dnsmasq hardened by `steadfast cc`, against plain builds |
//! | `bench sei-alarms` | false alarms of hardened servers, without a network |
//! | `bench soak` | the same over sockets |
//! | `bench sei-tables` | tables and Figure 6 of the SEI paper, beside the paper's values |
//! | `bench cc-memory` | what the runtime of `steadfast cc` keeps for a thread |
//! | `bench kv` | the stages of `steadfast kv`, its repairs, and what a struck group answers |
//! | `bench host` | resets, recovery and tracking of `steadfast host` |
//! | `bench pair` | two hosts: commits, a host that dies under a download, acknowledgements held back |
//! | `bench inject` | fault injection: armed runs, planting, counting, reach, exactness, runs a second |
//! | `bench doctor` | whether planted faults hit what single steps hit, over the plans of campaigns |
//! | `bench algorithm` | every fault at every step of the model of the hardening algorithm |
//! | `bench flips`, `bench python`, `bench suite`, `bench slurm` | suites of hours ([`suites`]) |
//! | `bench model` | what hardening the trusted rest would cost, by the model of Döbel and Härtig 2013 |
//! | `bench reproduce` | all of them that this machine can, as one page beside the papers' values |
//! | `bench show` | the table of a file that any of these has written |
//!
//! Rules every command keeps
//!  1. What is compared is run in turns, in an order shuffled anew each round, and compared
//!     within the round; the machine may drift, the ratio does not.
//!  2. Medians and 95 % bootstrap intervals, from a seed that is printed.
//!  3. A target counts as met only if the interval's upper end is within the target plus
//!     [`verdict::SLACK_POINTS`]. Pending never counts as met.
//!  4. A run that fails is in the table as an error. Nothing is dropped.
//!  5. What a program writes is compared, byte for byte, with what it writes bare.
//!  6. The machine is described beside every table.
//!
//! Not covered: hardware counters. Where the published system used them, the table says
//! "not measurable here".

pub mod algorithm;
pub mod cc_memory;
pub mod column;
pub mod doctor;
pub mod guest;
pub mod host;
pub mod inject;
pub mod kv;
pub mod later;
pub mod libsei;
pub mod machine;
pub mod memory;
pub mod micro;
pub mod model;
pub mod neighbour;
pub mod pair;
mod plot;
pub mod process;
pub mod product;
pub mod repair;
pub mod reproduce;
pub mod rest;
pub mod results;
pub mod rounds;
pub mod sample;
pub mod sei;
pub mod sei_alarms;
pub mod sei_builds;
pub mod sei_servers;
pub mod sei_tables;
pub mod servers;
pub mod soak;
pub mod spec;
pub mod start;
pub mod stats;
pub mod suites;
pub mod table;
pub mod touch;
pub mod trees;
pub mod verdict;

#[cfg(test)]
mod tests;
