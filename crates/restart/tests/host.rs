//! Components in C, bare and failing: handles stay, states come back, alarms ring and stay silent.

#[path = "cases/alarms.rs"]
mod alarms;
#[path = "cases/clock.rs"]
mod clock;
#[path = "cases/events.rs"]
mod events;
#[path = "cases/filesystem/mod.rs"]
mod filesystem;
#[path = "cases/fixture.rs"]
mod fixture;
#[path = "cases/fs.rs"]
mod fs;
#[path = "cases/http.rs"]
mod http;
#[path = "cases/keep.rs"]
mod keep;
#[path = "cases/keyvalue.rs"]
mod keyvalue;
#[path = "cases/linked.rs"]
mod linked;
#[path = "cases/load.rs"]
mod load;
#[path = "cases/lock.rs"]
mod lock;
#[path = "cases/memory.rs"]
mod memory;
#[path = "cases/moves.rs"]
mod moves;
#[path = "cases/nested.rs"]
mod nested;
#[path = "cases/process.rs"]
mod process;
#[path = "cases/replay.rs"]
mod replay;
#[path = "cases/rogue.rs"]
mod rogue;
#[path = "cases/scheduler.rs"]
mod scheduler;
#[path = "cases/stays.rs"]
mod stays;
#[path = "cases/swap.rs"]
mod swap;
#[path = "cases/trial.rs"]
mod trial;
#[path = "cases/upgrade.rs"]
mod upgrade;
