//! `steadfast host upgrade`: another version of a component takes over in an application that runs.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value as Json, json};
use steadfast_restart::{Console, Host, UpgradeError};

use crate::app::{App, Ways};
use crate::control::{self, Question};
use crate::events::Events;
use crate::output::Output;
use crate::told::Told;

/// Replaces a component of an application that runs; its clients keep their handles.
#[derive(Debug, Args)]
pub(crate) struct Upgrade {
    /// The socket that its `host run --control` names
    socket: PathBuf,
    /// The component's name in app.toml
    component: String,
    /// The new version's compiled image, a file of its own; NAME.wit and NAME.recover.toml lie beside it
    image: PathBuf,
}

impl Upgrade {
    pub(crate) fn run(&self) -> Result<ExitCode, Told> {
        // The application has another working directory.
        let image = std::fs::canonicalize(&self.image).map_err(|error| {
            let what = format!("{} cannot be read", self.image.display());
            Told::setup(
                anyhow::Error::new(error).context(what),
                "steadfast host compile NAME.wasm",
            )
        })?;
        let question = Question::Upgrade {
            component: self.component.clone(),
            image,
        };
        let done = control::ask(&self.socket, &question)?;
        println!(
            "{}: {} objects and {} names came into the new version; calls waited {} us",
            self.component,
            done["objects"],
            done["names"],
            done["pause_ns"].as_u64().unwrap_or(0) / 1000
        );
        Ok(ExitCode::SUCCESS)
    }
}

/// The application's side.
pub(crate) struct Upgrader {
    pub(crate) app: App,
    pub(crate) host: Host,
    pub(crate) output: Output,
    pub(crate) events: Arc<Events>,
    pub(crate) dump: bool,
}

impl Upgrader {
    /// Replaces a component; or says why it stays, with what would help.
    pub(crate) fn upgrade(&self, name: &str, image: &Path) -> Result<Json, Told> {
        let done = self.try_to(name, image);
        let line = match &done {
            Ok(done) => json!({ "component": name, "image": image, "done": done }),
            Err(told) => {
                json!({ "component": name, "image": image, "refused": format!("{:#}", told.what) })
            }
        };
        self.events.write("component_upgrade", line);
        done
    }

    fn try_to(&self, name: &str, image: &Path) -> Result<Json, Told> {
        let console = |name: &str| -> Result<Console, Told> { self.output.console(name) };
        let quiet: steadfast_restart::host::Listener = Arc::new(|_| {});
        let ways = Ways {
            listener: &quiet,
            dump: self.dump,
            console: &console,
        };
        let component = self.app.replacement(&self.host, name, image, &ways)?;
        let upgraded = self.host.upgrade(component)?;
        let ns = u64::try_from(upgraded.pause.as_nanos()).unwrap_or(u64::MAX);
        Ok(json!({ "objects": upgraded.objects, "names": upgraded.names, "pause_ns": ns }))
    }
}

impl From<UpgradeError> for Told {
    fn from(error: UpgradeError) -> Self {
        let fix = error.fix();
        Self::setup(error, fix)
    }
}
