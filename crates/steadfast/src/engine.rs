//! The seam to the replica engine: the one place that knows which one it is.

use std::ops::ControlFlow;

use steadfast_contract::advice::Advise;
use steadfast_contract::event::EventSink;
use steadfast_contract::exit::Exit;
use steadfast_contract::plan::{Plan, RunReport};
use steadfast_replica::front::Side;

/// What an engine says when it could not carry a plan out.
pub(crate) type Failure = Box<dyn Advise>;

/// What became of carrying a plan out. Broken off: this process is the one that the caller waits for, and another one has
/// carried it out (front.rs).
pub(crate) type Ran = ControlFlow<Exit, Result<RunReport, Failure>>;

/// Carries a plan out.
pub(crate) fn run(plan: &Plan, sink: &mut dyn EventSink) -> Ran {
    let failed = |why| Box::new(why) as Failure;
    let front = if plan.explain {
        None
    } else {
        match steadfast_replica::divide() {
            Ok(Side::Front(exit)) => return Ran::Break(exit),
            Ok(Side::Supervisor(front)) => Some(front),
            Err(why) => return Ran::Continue(Err(failed(why))),
        }
    };
    Ran::Continue(steadfast_replica::run(plan, front, sink).map_err(failed))
}
