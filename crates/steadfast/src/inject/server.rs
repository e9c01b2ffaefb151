//! The flags that make a target a server: who asks it, when it is ready, how it is ended.

use std::path::PathBuf;

use clap::Args;
use steadfast_inject::record::Pattern;
use steadfast_inject::server::{Client, Driver, Ready};

use super::target::{OrderError, flag};
use crate::find;

#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// CMD is a server, and this asks it: a command, whose output is judged; or trace:FILE, which
    /// holds requests and right replies (docs/guide/inject.md)
    #[arg(long, value_name = "CMD|trace:FILE", requires = "ready")]
    driver: Option<String>,

    /// The server is ready when this port is listened at, this path exists, or it has said this
    #[arg(long, value_name = "PORT|PATH|PATTERN", requires = "driver")]
    ready: Option<String>,

    /// How the server is ended when its client is done
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", value_parser = ["TERM", "INT", "HUP", "QUIT", "KILL"])]
    stop: String,

    /// A first wrong line that matches is an error reply, not a wrong answer
    #[arg(long, value_name = "REGEX", requires = "driver")]
    error_reply: Option<String>,

    /// The built-in client asks for the message envelope (docs/reference/envelope.md) and checks it
    #[arg(long, requires = "driver")]
    envelope: bool,
}

impl ServerArgs {
    /// Whether the target is a server.
    pub(super) fn is_driven(&self) -> bool {
        self.driver.is_some()
    }

    /// What these arguments ask for; nothing for a target that is no server.
    pub(super) fn driver(&self, network: bool, replicas: u8) -> Result<Option<Driver>, OrderError> {
        let (Some(driver), Some(ready)) = (&self.driver, &self.ready) else {
            return Ok(None);
        };
        if network {
            return Err(flag(
                "driver",
                "without --network, where somebody else might answer",
                driver,
            ));
        }
        if replicas > 0 && self.stop == "KILL" {
            return Err(flag(
                "stop",
                "a signal that the program ends on and replicas report after (TERM, INT, HUP, QUIT)",
                "KILL",
            ));
        }
        let ready = Ready::parse(ready).ok_or_else(|| {
            flag(
                "ready",
                "a port, a path with a slash, or a regular expression",
                ready,
            )
        })?;
        let client = if let Some(file) = driver.strip_prefix("trace:") {
            if matches!(ready, Ready::Pattern(_)) {
                return Err(flag(
                    "ready",
                    "a port or a socket's path, where the built-in client connects",
                    "a pattern",
                ));
            }
            let file = PathBuf::from(file);
            Client::Trace {
                file: file.canonicalize().unwrap_or(file),
                envelope: self.envelope,
            }
        } else {
            if self.envelope {
                return Err(flag("envelope", "with --driver trace:FILE", driver));
            }
            let argv: Vec<String> = driver.split_whitespace().map(str::to_owned).collect();
            let Some(program) = argv.first() else {
                return Err(flag("driver", "a command, or trace:FILE", driver));
            };
            let path = find::find(program.as_ref(), std::env::var_os("PATH").as_deref())?;
            Client::Command(path.canonicalize().unwrap_or(path), argv)
        };
        let error_reply = self
            .error_reply
            .as_deref()
            .map(|text| {
                text.parse::<Pattern>()
                    .map_err(|_| flag("error-reply", "a regular expression", text))
            })
            .transpose()?;
        Ok(Some(Driver {
            client,
            ready,
            stop: match self.stop.as_str() {
                "INT" => libc::SIGINT,
                "HUP" => libc::SIGHUP,
                "QUIT" => libc::SIGQUIT,
                "KILL" => libc::SIGKILL,
                _ => libc::SIGTERM,
            },
            error_reply,
        }))
    }
}
