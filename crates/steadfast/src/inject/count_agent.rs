//! `steadfast inject count-agent`: what a campaign in the agent draws from, in a process of its own.
//!
//! The engine steps through the replicas and reaps every child of its process, so the campaign starts this in its sandbox.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

use clap::Args;
use steadfast_contract::exit::Exit;
use steadfast_contract::plan::Plan;
use steadfast_inject::victim::Counts;

use super::target::{OrderError, finish};
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct CountAgentArgs {
    /// Replicas
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=3))]
    replicas: u8,

    /// Where the counts are written
    #[arg(long, value_name = "FILE")]
    to: PathBuf,

    /// The program, by its path, and its arguments
    #[arg(value_name = "CMD", required = true, trailing_var_arg = true)]
    command: Vec<OsString>,
}

/// Counts.
pub(super) fn count(args: &CountAgentArgs, console: &mut Console<'_>) -> Exit {
    finish(console, |_| {
        let (program, rest) = args.command.split_first().unwrap_or_else(|| unreachable!());
        let mut plan = Plan::new(program.clone(), program.into(), rest.to_vec());
        plan.replicas = args.replicas;
        let (report, profile) = steadfast_replica::profile(&plan)
            .map_err(|why| OrderError::Campaign(why.to_string(), Some("steadfast check".into())))?;
        let counts = Counts {
            replicas: profile.agent,
            events: report.events,
        };
        serde_json::to_vec(&counts)
            .map_err(std::io::Error::other)
            .and_then(|text| fs::write(&args.to, text))
            .map_err(|why| {
                OrderError::Campaign(
                    format!("{} has to be writable: {why}", args.to.display()),
                    None,
                )
            })?;
        Ok(Exit::Status(0))
    })
}
