//! `steadfast host generate`: the model of recovery, from WIT and a sidecar file, and the test that follows from it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use steadfast_restart::host::stopped_clock;
use steadfast_restart::trial::{MakeError, Trial, Tried};
use steadfast_restart::{Component, Edge, Host, Model, Policy, Samples};

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
    /// Makes random legal calls, with a crash at every call boundary, and holds the answers against those without
    #[arg(long)]
    test: bool,
    /// The compiled image that is tested [default: beside the WIT, ending in .cwasm]
    #[arg(long, value_name = "FILE", requires = "test")]
    image: Option<PathBuf>,
    /// Components that it calls, in the folder of the image; each may call those before it
    #[arg(long, value_name = "NAME", value_delimiter = ',', requires = "test")]
    uses: Vec<String>,
    /// The component's function that is called once at its start
    #[arg(long, value_name = "FUNCTION", requires = "test")]
    init: Option<String>,
    /// Sequences of calls
    #[arg(long, value_name = "N", default_value_t = 20, requires = "test")]
    sequences: u32,
    /// Calls of each sequence
    #[arg(long, value_name = "N", default_value_t = 24, requires = "test")]
    calls: u32,
    /// Draws the calls: the same seed draws the same ones
    #[arg(long, value_name = "N", default_value_t = 1, requires = "test")]
    seed: u64,
}

/// The last one, which may use those before it.
fn start(parts: &[Component], policy: Policy) -> Result<Tried, MakeError> {
    let mut host = Host::new(true)?;
    let mut edges: Vec<Edge> = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let mut component = Component {
            policy,
            ..part.clone()
        };
        for other in &parts[..place] {
            component
                .uses
                .push(host.edge(&part.name, &other.name, &[])?);
        }
        host.add(component, None)?;
        edges.push(host.edge("test", &part.name, &[])?);
    }
    let edge = edges.pop().ok_or("there is no component")?;
    Ok(Tried {
        host,
        edge,
        others: edges,
    })
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
        let samples = Samples::of(&sidecar, &model)?;
        if self.explain {
            print!("{}", model.explain());
        } else {
            let objects = match model.resources.len() {
                0 => "without objects".to_owned(),
                1 => "1 kind of object, all of which come back".to_owned(),
                n => format!("{n} kinds of objects, all of which come back"),
            };
            println!(
                "{}: {} functions, {objects}",
                self.wit.display(),
                model.functions.len()
            );
        }
        if self.test {
            return self.test(model, samples);
        }
        Ok(ExitCode::SUCCESS)
    }

    fn test(&self, model: Model, samples: Samples) -> Result<ExitCode, Told> {
        let image = self.image.clone();
        let image = image.unwrap_or_else(|| self.wit.with_extension("cwasm"));
        let mut parts = Vec::new();
        for other in &self.uses {
            let other = image.with_file_name(format!("{other}.cwasm"));
            parts.push(Component::beside(&other)?);
        }
        let name = image.file_stem().unwrap_or_default().to_string_lossy();
        parts.push(Component {
            name: name.into_owned(),
            image: image.clone(),
            init: self.init.clone(),
            ..Component::of(model)
        });
        for part in &mut parts {
            part.answers = stopped_clock();
            part.console = Some(Arc::new(|_, _| {}));
        }
        let trial = Trial {
            samples,
            seed: self.seed,
            sequences: self.sequences,
            calls: self.calls,
        };
        let held = trial.run(&|policy| start(&parts, policy))?;
        println!(
            "{} calls in {} sequences, {} crashes at their boundaries: every answer is the one without a crash",
            held.calls, self.sequences, held.crashes
        );
        if let Some(why) = &held.failure {
            println!(
                "not tried: {} calls at which the component fails by itself, the last one {why}",
                held.failed
            );
        }
        for (path, (calls, good)) in &held.functions {
            match (calls, good) {
                (0, _) => println!("not tried: {path}, which no sequence came to"),
                (calls, 0) => println!("hardly tried: {path}, which refused all of {calls} calls"),
                _ => {}
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
