//! A client and a host in a second process, which the injector strikes: for the demonstration and for campaigns.
//!
//! Register flips strike while a thread stands in the component's code, mapped from its .cwasm file. In the demonstration's bare half the first
//! process stops the thread (steadfast_inject::live). A component in a process of its own mostly waits, so a timer of that process strikes there
//! (clock.rs). Campaigns use the timer in every mode, which is faster by orders. Memory flips are made by the second process between two
//! rounds of calls, in one body alone.
//!
//! ```text
//!   Plan ──► second process: client, host, component ──flips──► Sum: reboots by cause, wrong answers, deaths
//!              ▲ again after each death, or where asked after each wrong answer
//! ```
//!
//! Invariants
//!  1. No failure is staged: whatever happens follows from a flip.
//!  2. The client knows what each call must return, and counts what is wrong.
//!  3. An end of the second process is counted and told, in every mode.
//!
//! Not covered: flips in data of the host other than what it remembers of objects.

mod client;
mod clock;
mod exact;
mod places;
mod plan;
mod table;
mod words;

pub(crate) use self::client::ClientProcess;
pub(crate) use self::exact::At;
pub(crate) use self::places::Ends;
pub(crate) use self::plan::{Plan, Sum, Until};
pub(crate) use self::words::{Mode, Target};
