//! `steadfast inject merge`.

use std::path::PathBuf;

use clap::Args;
use steadfast_contract::advice::{Advise, Remedy};
use steadfast_contract::exit::{Exit, Own};
use steadfast_inject::merge::{self, MergeError};
use steadfast_inject::record::RecordError;
use steadfast_report::format::count;

use super::read_error;
use crate::report::Console;

#[derive(Debug, Args)]
pub(crate) struct MergeArgs {
    /// Directories of the parts
    #[arg(value_name = "SHARD", required = true)]
    shards: Vec<PathBuf>,

    /// Directory to write the whole to; new or empty
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error(transparent)]
struct Refusal(MergeError);

impl Advise for Refusal {
    fn exit(&self) -> Own {
        Own::Setup
    }

    fn fix(&self) -> Option<Remedy> {
        let remedy = match &self.0 {
            MergeError::Different { other, .. } => {
                Remedy::new(format!("leave {} out", other.display()))
            }
            MergeError::Duplicate { other, .. } => Remedy::new(format!(
                "leave one of them out, such as {}",
                other.display()
            )),
            MergeError::Foreign { path, .. } => Remedy::new(format!(
                "run that part again, to another directory than {}",
                path.display()
            )),
            MergeError::NotEmpty { .. } => Remedy::new("--out with the name of a new directory"),
            MergeError::Nothing => Remedy::new("name the directories of the parts"),
            MergeError::Copy { .. } => Remedy::new("look at the space and the rights of --out"),
            MergeError::Record(_) => Remedy::new("restore the file from where the part ran"),
        };
        Some(remedy)
    }
}

/// Merges, and says what is still missing.
pub(super) fn merge(args: &MergeArgs, console: &mut Console<'_>) -> Exit {
    match merge::merge(&args.shards, &args.out) {
        Ok(merged) => {
            let missing = match merged.missing {
                0 => "complete".to_owned(),
                missing => format!("{} runs of the plan are missing", count(missing)),
            };
            console.result(&format!(
                "{}: {} runs of {} parts, {missing}\n",
                args.out.display(),
                count(merged.runs),
                merged.parts
            ));
            Exit::Status(0)
        }
        Err(MergeError::Record(why @ RecordError::Io { .. })) => {
            console.refuse(&read_error(why.into()))
        }
        Err(why) => console.refuse(&Refusal(why)),
    }
}
