//! The seam to the replica engine: the one place that knows which one it is.

use steadfast_integrity::advice::{Advise, Remedy};
use steadfast_integrity::exit::Own;
use steadfast_integrity::plan::{EventSink, Plan, RunReport};

/// What an engine says when it could not carry a plan out.
pub(crate) type Failure = Box<dyn Advise>;

/// This build has no engine.
#[derive(Debug, thiserror::Error)]
#[error("a replica engine is needed to run a program, this build has none")]
struct NoEngine;

impl Advise for NoEngine {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        Some(Remedy::new("build the whole workspace: make build"))
    }
}

/// Carries a plan out.
pub(crate) fn run(_: &Plan, _: &mut dyn EventSink) -> Result<RunReport, Failure> {
    Err(Box::new(NoEngine))
}
