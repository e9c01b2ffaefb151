//! What components print: to the host's own streams behind each one's name, or into a file for each.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value as Json, json};
use steadfast_restart::{Console, Stream};

use crate::told::Told;

/// Where the text of components goes.
#[derive(Debug, Clone)]
pub(crate) struct Output {
    folder: Option<PathBuf>,
}

fn path(folder: &Path, name: &str, ending: &str) -> PathBuf {
    folder.join(format!("{name}.{ending}"))
}

impl Output {
    pub(crate) fn new(folder: Option<&Path>) -> Result<Self, Told> {
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder).map_err(|error| refused(folder, error))?;
        }
        Ok(Self {
            folder: folder.map(Into::into),
        })
    }

    /// For the events: the files, where there are some.
    pub(crate) fn named(&self, name: &str) -> Json {
        match &self.folder {
            None => json!({ "stdout": "stdout", "stderr": "stderr" }),
            Some(folder) => {
                json!({ "stdout": path(folder, name, "out"), "stderr": path(folder, name, "err") })
            }
        }
    }

    /// Each line behind the component's name, and nothing in between of another one's; in a file of its own, as it came.
    pub(crate) fn console(&self, name: &str) -> Result<Console, Told> {
        let Some(folder) = &self.folder else {
            let name = name.to_owned();
            return Ok(Arc::new(move |stream, text: &str| match stream {
                Stream::Out => lines(&mut std::io::stdout().lock(), &name, text),
                Stream::Err => lines(&mut std::io::stderr().lock(), &name, text),
            }));
        };
        let open = |ending: &str| {
            let path = path(folder, name, ending);
            let file = OpenOptions::new().create(true).append(true).open(&path);
            file.map(Mutex::new).map_err(|error| refused(&path, error))
        };
        let (out, err) = (open("out")?, open("err")?);
        Ok(Arc::new(move |stream, text: &str| {
            let file: &Mutex<File> = match stream {
                Stream::Out => &out,
                Stream::Err => &err,
            };
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = writeln!(file, "{}", text.trim_end_matches('\n'));
        }))
    }
}

fn lines(to: &mut impl Write, name: &str, text: &str) {
    for line in text.lines() {
        let _ = writeln!(to, "{name}: {line}");
    }
}

fn refused(path: &Path, error: std::io::Error) -> Told {
    let what = anyhow::Error::new(error).context(format!("{} cannot be written", path.display()));
    Told::setup(what, "--output DIR")
}
