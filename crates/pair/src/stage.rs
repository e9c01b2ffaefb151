//! Stage: two hosts that run a server and a third with a client, and the ways in which one of them is lost.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use crate::cli::{Demo, Lose};
use crate::error::PairError;
use crate::hosts::{Host, cable, run_tool};

pub(crate) fn bad(source: io::Error) -> PairError {
    PairError::Kernel {
        part: "the demo's processes and files",
        source,
    }
}

/// Three hosts, connected, of which two begin to run a server.
pub(crate) struct Stage {
    /// What a host is started with.
    pub(crate) more: Vec<String>,
    pub(crate) a: Host,
    pub(crate) b: Host,
    pub(crate) c: Host,
}

impl Stage {
    pub(crate) fn set(dir: &Path, options: &Demo) -> Result<Self, PairError> {
        let lost_after = options.lost_after.to_string();
        let hold_acks = options.hold_acks.word();
        let six = options.six.then_some("--six");
        let more: Vec<String> = ["--lost-after", &lost_after, "--hold-acks", hold_acks]
            .into_iter()
            .chain(six)
            .chain(["--"])
            .map(str::to_owned)
            .chain(options.command.iter().cloned())
            .collect();
        let flags: Vec<&str> = more.iter().map(String::as_str).collect();
        let mut c = Host::start_with(dir, "c", &[]).map_err(bad)?;
        let mut b = Host::start_with(dir, "b", &flags).map_err(bad)?;
        let mut a = Host::start_with(dir, "a", &flags).map_err(bad)?;
        let told = |error| told(dir, error);
        for host in [&mut a, &mut b, &mut c] {
            host.line().map_err(told)?;
        }
        cable([("steadfast-a", a.number()), ("steadfast-ca", c.number())])?;
        cable([("steadfast-b", b.number()), ("steadfast-cb", c.number())])?;
        for host in [&mut c, &mut b, &mut a] {
            host.say("net").map_err(told)?;
            host.line().map_err(told)?;
        }
        if options.six {
            c.say("six").map_err(told)?;
            c.line().map_err(told)?;
        }
        Ok(Self { more, a, b, c })
    }
}

/// What the hosts have said.
pub(crate) fn said(dir: &Path) -> String {
    ["a", "b", "c"]
        .map(|site| fs::read_to_string(dir.join(format!("{site}.err"))).unwrap_or_default())
        .concat()
}

pub(crate) fn told(dir: &Path, error: io::Error) -> PairError {
    PairError::Kernel {
        part: "the demo's host",
        source: io::Error::other(format!("{error}\n{}", said(dir))),
    }
}

/// The host is lost to the others in one of several ways.
pub(crate) fn lose_as(
    dir: &Path,
    how: Lose,
    host: &mut Host,
    client: &Host,
) -> Result<&'static str, PairError> {
    Ok(match how {
        Lose::Power => {
            lose(host, client, "steadfast-ca")?;
            "A's cable is pulled, and A is killed"
        }
        Lose::Cable => {
            pull(client, "steadfast-ca")?;
            hide_witness(dir, host)?;
            "A's cable is pulled, and with it its way to the witness"
        }
        Lose::Freeze => {
            host.freeze();
            "A's processes stand still"
        }
    })
}

/// The witness is a directory here, which no cable leads to.
fn hide_witness(dir: &Path, host: &Host) -> Result<(), PairError> {
    let number = host.number().to_string();
    let mut hide = Command::new("nsenter");
    hide.args([
        "-t", &number, "-m", "mount", "-t", "tmpfs", "-o", "ro", "none",
    ]);
    run_tool(hide.arg(dir.join("witness"))).map(drop)
}

/// The cable first: a kernel that lives on would close the connections of a process that it kills.
pub(crate) fn lose(host: &mut Host, client: &Host, cable: &str) -> Result<(), PairError> {
    pull(client, cable)?;
    host.kill().map_err(bad)
}

fn pull(client: &Host, cable: &str) -> Result<(), PairError> {
    let number = client.number().to_string();
    let pulled = ["-t", &number, "-n", "ip", "link", "set", cable, "down"];
    // With its host its end of the cable may be gone.
    if let Err(error) = run_tool(Command::new("nsenter").args(pulled))
        && !error.to_string().contains("Cannot find device")
    {
        return Err(error);
    }
    Ok(())
}
