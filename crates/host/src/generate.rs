//! `steadfast host generate`: the model of recovery, from WIT and a sidecar file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use steadfast_restart::Model;

use crate::told::{Told, read_text};

/// Says how the objects of an interface come back, or why they cannot.
#[derive(Debug, Args)]
pub(crate) struct Generate {
    /// The WIT of the component's world
    wit: PathBuf,
    /// What the WIT does not say [default: beside it, ending in .recover.toml]
    #[arg(long)]
    recover: Option<PathBuf>,
    /// Prints what was inferred and what the sidecar adds
    #[arg(long)]
    explain: bool,
}

impl Generate {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let wit = read_text(&self.wit)?;
        let beside = self.wit.with_extension("recover.toml");
        let sidecar = match &self.recover {
            Some(path) => read_text(path)?,
            None if beside.exists() => read_text(&beside)?,
            None => String::new(),
        };
        let model = Model::generate(&wit, &sidecar)?;
        if self.explain {
            print!("{}", model.explain());
        } else {
            let objects = model.resources.len();
            println!(
                "{}: {} functions, {objects} kinds of objects, all of them come back",
                self.wit.display(),
                model.functions.len()
            );
        }
        Ok(ExitCode::SUCCESS)
    }
}
