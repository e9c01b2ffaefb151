//! `--control SOCKET`: where a running application is asked what it does, and told what to change.
//!
//! One question a connection: a line of JSON, answered by another one with `ok` or `error`.
//!
//! Invariants
//!  1. The socket belongs to its user alone (mode 0600): whoever may write to it may replace components.
//!  2. A socket at which another process answers is never taken away from it.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use crate::told::Told;

/// For the question. The answer may take as long as a component takes to start.
const PATIENCE: Duration = Duration::from_secs(10);
const ANSWER: Duration = Duration::from_secs(120);
const QUESTION_MAX: u64 = 64 << 10;

/// What may be asked.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Question {
    Status,
    Upgrade { component: String, image: PathBuf },
}

/// The socket; taken away at the end.
pub(crate) struct Socket(PathBuf);

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Answers until the process ends.
pub(crate) fn serve(
    path: &Path,
    answer: impl Fn(Question) -> Result<Json, Told> + Send + 'static,
) -> Result<Socket, Told> {
    let told = |error: io::Error| {
        let what = format!("{} cannot be listened at", path.display());
        Told::setup(
            anyhow::Error::new(error).context(what),
            "--control SOCKET, a path of its own",
        )
    };
    if UnixStream::connect(path).is_ok() {
        return Err(told(io::ErrorKind::AddrInUse.into()));
    }
    // Nobody listens: it was left by a process that was killed. Anything but a socket stays, and is an error of bind(2).
    let left = std::fs::symlink_metadata(path);
    if left.is_ok_and(|left| std::os::unix::fs::FileTypeExt::is_socket(&left.file_type())) {
        std::fs::remove_file(path).map_err(told)?;
    }
    let listener = UnixListener::bind(path).map_err(told)?;
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(path, mode).map_err(told)?;
    let run = move || {
        for stream in listener.incoming() {
            match stream {
                Ok(stream) => drop(exchange(&stream, &answer)),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    };
    let spawned = std::thread::Builder::new()
        .name("host-control".into())
        .spawn(run);
    spawned.map_err(told)?;
    Ok(Socket(path.into()))
}

fn exchange(
    mut stream: &UnixStream,
    answer: impl Fn(Question) -> Result<Json, Told>,
) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(QUESTION_MAX)).read_line(&mut line)?;
    let answered = serde_json::from_str(&line)
        .map_err(|error| {
            let what = format!("a question is needed, found {}", line.trim_end());
            anyhow::Error::new(error).context(what).into()
        })
        .and_then(answer);
    let text = match answered {
        Ok(answer) => json!({ "ok": answer }),
        Err(told) => json!({ "error": format!("{:#}", told.what), "fix": told.fix }),
    };
    writeln!(stream, "{text}")
}

/// Asks an application that runs.
pub(crate) fn ask(path: &Path, question: &Question) -> Result<Json, Told> {
    let silent = |error: io::Error| {
        let what = format!("no application answers at {}", path.display());
        Told::setup(
            anyhow::Error::new(error).context(what),
            "steadfast host run app.toml --control SOCKET, and the same SOCKET here",
        )
    };
    let mut stream = UnixStream::connect(path).map_err(silent)?;
    stream.set_read_timeout(Some(ANSWER)).map_err(silent)?;
    let text = serde_json::to_string(question).map_err(|error| silent(error.into()))?;
    writeln!(stream, "{text}").map_err(silent)?;
    let mut line = String::new();
    BufReader::new(stream)
        .read_line(&mut line)
        .map_err(silent)?;
    let answer: Json = serde_json::from_str(&line).map_err(|error| silent(error.into()))?;
    match answer.get("ok") {
        Some(answer) => Ok(answer.clone()),
        None => {
            let error = answer["error"].as_str().unwrap_or(&line).to_owned();
            let fix = answer["fix"].as_str().unwrap_or("see the message");
            Err(Told::setup(anyhow::anyhow!(error), fix))
        }
    }
}
