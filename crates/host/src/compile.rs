//! `steadfast host compile`: a component, or a core module with its WIT, to an image for this machine.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use steadfast_restart::{Engine, package};

use crate::told::{Told, read, read_text};

/// Compiles a component ahead of time.
#[derive(Debug, Args)]
pub(crate) struct Compile {
    /// The component, or a core module together with --wit
    component: PathBuf,
    /// The WIT of a core module's world
    #[arg(long)]
    wit: Option<PathBuf>,
    /// Where the image goes [default: beside the component, ending in .cwasm]
    #[arg(short, long)]
    output: Option<PathBuf>,
}

impl Compile {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        let mut bytes = read(&self.component)?;
        if !package::is_component(&bytes) {
            let Some(wit) = &self.wit else {
                let what = anyhow::anyhow!(
                    "a component is needed, {} is a core module",
                    self.component.display()
                );
                return Err(Told::setup(
                    what,
                    "--wit FILE with the world that it implements",
                ));
            };
            let wit = read_text(wit)?;
            bytes = package::componentize(&self.component, &bytes, &wit).map_err(|error| {
                Told::setup(error, "export what the WIT says, under its canonical names")
            })?;
        }
        let image = Engine::new(true)?.compile(&self.component, &bytes)?;
        let output = self
            .output
            .clone()
            .unwrap_or_else(|| self.component.with_extension("cwasm"));
        std::fs::write(&output, &image).map_err(|error| {
            Told::setup(
                anyhow::Error::new(error)
                    .context(format!("{} cannot be written", output.display())),
                "-o FILE",
            )
        })?;
        Ok(ExitCode::SUCCESS)
    }
}
