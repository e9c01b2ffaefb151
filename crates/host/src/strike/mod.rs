//! A client and a host in a second process, which the injector strikes: for the demonstration and for campaigns.
//!
//! Register flips of the demonstration are the injector's (steadfast_inject::live): this process stops a thread of the second one while it
//! stands in the component's code, mapped from its .cwasm file, and flips one bit of one general register. Those of a campaign are made by
//! a timer of the second process, under the same condition, which is faster by orders. Memory flips are made by the second process as well,
//! between two rounds of calls, in one body alone.
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
mod places;
mod plan;
mod table;
mod words;

pub(crate) use self::client::ClientProcess;
pub(crate) use self::places::Ends;
pub(crate) use self::plan::{Plan, Sum, Until};
pub(crate) use self::words::{Mode, Target};
