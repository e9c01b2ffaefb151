//! Lines of events: what `--events FILE` writes.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde_json::Value as Json;

use crate::told::Told;

/// Lines of events: version, number and time in front, as in every part.
pub(crate) struct Events {
    file: Option<Mutex<File>>,
    seq: AtomicU64,
    begin: Instant,
}

impl Events {
    /// A new file, or one that goes on.
    pub(crate) fn new(path: Option<&PathBuf>, append: bool) -> Result<Self, Told> {
        let mut options = File::options();
        options
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append);
        let open = |path: &PathBuf| {
            options.open(path).map(Mutex::new).map_err(|error| {
                let what = format!("{} cannot be written", path.display());
                Told::setup(anyhow::Error::new(error).context(what), "--events FILE")
            })
        };
        Ok(Self {
            file: path.map(open).transpose()?,
            seq: AtomicU64::new(0),
            begin: Instant::now(),
        })
    }

    pub(crate) fn write(&self, kind: &str, mut line: Json) {
        let Some(file) = &self.file else {
            return;
        };
        let ns = u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        line["v"] = steadfast_contract::event::SCHEMA_VERSION.into();
        line["seq"] = self.seq.fetch_add(1, Ordering::Relaxed).into();
        line["t_ns"] = ns.into();
        line["type"] = kind.into();
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = writeln!(file, "{line}");
    }
}
