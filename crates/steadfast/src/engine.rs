//! The seam to the replica engine: the one place that knows which one it is.

use steadfast_integrity::advice::Advise;
use steadfast_integrity::plan::{EventSink, Plan, RunReport};

/// What an engine says when it could not carry a plan out.
pub(crate) type Failure = Box<dyn Advise>;

/// Carries a plan out.
pub(crate) fn run(plan: &Plan, sink: &mut dyn EventSink) -> Result<RunReport, Failure> {
    steadfast_replica::run(plan, sink).map_err(|why| Box::new(why) as Failure)
}
