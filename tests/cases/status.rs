//! `steadfast ps` and `steadfast top`: what runs is listed with its numbers, and what has ended is not, however it ended.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::bench::{Bench, one_group};
use crate::check::protector;
use crate::run::{Invocation, Running, Stdin};
use crate::trial::Trial;

const LIMIT: Duration = Duration::from_secs(30);
const GRACE: Duration = Duration::from_secs(5);
/// Two processes. The first one ends the second when it is told to.
const SCRIPT: &str = "sleep 600 & echo ready; read line; kill $!; wait";

/// What the command says, one value a line.
pub(crate) fn said(words: &[&str]) -> Result<Vec<Value>, String> {
    let run = Command::new(Bench::get().binary())
        .args(words)
        .output()
        .map_err(|error| error.to_string())?;
    let text = String::from_utf8_lossy(&run.stdout);
    if !run.status.success() || !run.stderr.is_empty() {
        return Err(format!("{words:?} ended with {}: {text}", run.status));
    }
    text.lines()
        .map(|line| serde_json::from_str(line).map_err(|error| format!("{error}: {line}")))
        .collect()
}

/// The groups of a launcher; nothing if it is not listed.
fn groups(said: &Value, launcher: i32) -> Option<Vec<Value>> {
    said["trees"]
        .as_array()?
        .iter()
        .find(|tree| tree["launcher"] == launcher)?["groups"]
        .as_array()
        .cloned()
}

/// The launchers of trees that consist of one group, which runs this command; other cases may have one as well.
pub(crate) fn groups_with(said: &Value, words: &[&str]) -> Vec<i32> {
    let trees = said["trees"].as_array().into_iter().flatten();
    let has = |tree: &&Value| {
        let groups = tree["groups"].as_array();
        groups.is_some_and(|groups| groups.len() == 1 && is_command(&groups[0], words))
    };
    let launcher = |tree: &Value| tree["launcher"].as_i64()?.try_into().ok();
    trees.filter(has).filter_map(launcher).collect()
}

fn is_command(group: &Value, words: &[&str]) -> bool {
    let command = group["command"].as_array().into_iter().flatten();
    command
        .map(|word| word.as_str())
        .eq(words.iter().copied().map(Some))
}

/// A tree with a repair behind it.
fn start(name: &str) -> Result<(Running, std::path::PathBuf), String> {
    let dir = Bench::get().case_dir(name);
    let flip = ["--flip", "replica=1 event=12 kill=9"];
    let invocation = Invocation {
        program: "/bin/sh".into(),
        args: ["-c", SCRIPT].map(str::to_owned).to_vec(),
        stdin: Stdin::Held,
        protector: protector(3, &dir.join("events"), &flip),
        ..Invocation::default()
    };
    let run = invocation.start(&dir).map_err(|error| error.to_string())?;
    run.await_output("ready\n", LIMIT)?;
    Ok((run, dir))
}

fn listed(run: &Running) -> Result<(), String> {
    let begun = Instant::now();
    loop {
        let now = said(&["ps", "--json"])?.remove(0);
        let all = groups(&now, run.pid()).unwrap_or_default();
        let shell = all
            .iter()
            .find(|one| is_command(one, &["/bin/sh", "-c", SCRIPT]));
        let child = all.iter().find(|one| is_command(one, &["sleep", "600"]));
        if let (Some(shell), Some(child)) = (shell, child)
            && shell["repairs"] == 1
            && child["repairs"] == 0
            && [shell, child].iter().all(|group| {
                let replicas = group["replicas"].as_array();
                replicas.is_some_and(|all| all.len() == 3 && all[0]["pid"] == group["pid"])
                    && group["threads"] == 1
                    && group["state"] == "running"
                    && group["events"].as_u64() > Some(12)
            })
        {
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            return Err(format!("launcher {} is not listed so: {now}", run.pid()));
        }
        thread::sleep(Duration::from_millis(50));
    }
}

fn not_listed(launcher: i32) -> Result<(), String> {
    let now = said(&["ps", "--json"])?.remove(0);
    match groups(&now, launcher) {
        None => Ok(()),
        Some(groups) => Err(format!(
            "launcher {launcher} has ended, and is listed: {groups:?}"
        )),
    }
}

fn is_listed_until_it_ends() -> Result<(), String> {
    let _group = one_group();
    let (mut run, dir) = start("status-ends")?;
    listed(&run)?;
    let launcher = run.pid();
    let looks = said(&["top", "--json", "--interval", "0.2", "--count", "2"])?;
    if looks.len() != 2 || looks.iter().any(|look| groups(look, launcher).is_none()) {
        return Err(format!("two looks at launcher {launcher}: {looks:?}"));
    }
    run.say("\n")?;
    let ran = run.wait(LIMIT)?;
    not_listed(launcher)?;
    ran.nothing_left(GRACE)?;
    Bench::get().passed(&dir);
    Ok(())
}

/// A monitor's endpoint, ended when it is dropped.
struct Endpoint(Child, SocketAddr);

impl Endpoint {
    fn start() -> Result<Self, String> {
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| error.to_string())?;
        let address = free.local_addr().map_err(|error| error.to_string())?;
        drop(free);
        let child = Command::new(Bench::get().binary())
            .args(["top", "--http", &address.to_string()])
            .spawn()
            .map_err(|error| error.to_string())?;
        Ok(Self(child, address))
    }

    /// What it says about a counter of this launcher.
    fn counter(&self, name: &str, launcher: i32) -> Result<Option<u64>, String> {
        let begun = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(self.1) {
                Ok(stream) => break stream,
                Err(error) if begun.elapsed() > LIMIT => return Err(error.to_string()),
                Err(_) => thread::sleep(Duration::from_millis(20)),
            }
        };
        let mut page = String::new();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut page))
            .map_err(|error| error.to_string())?;
        let begin = format!("steadfast_run_{name}{{launcher=\"{launcher}\"}} ");
        let value = page.lines().find_map(|line| line.strip_prefix(&begin));
        Ok(value.and_then(|value| value.parse().ok()))
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the launcher has counted stays when one of its processes ends.
fn is_counted_for_monitors() -> Result<(), String> {
    let _group = one_group();
    let endpoint = Endpoint::start()?;
    let dir = Bench::get().case_dir("status-monitor");
    let flip = ["--flip", "replica=1 event=12 kill=9"];
    let script = "(exit 0) & wait; echo ready; read line";
    let invocation = Invocation {
        program: "/bin/sh".into(),
        args: ["-c", script].map(str::to_owned).to_vec(),
        stdin: Stdin::Held,
        protector: protector(3, &dir.join("events"), &flip),
        ..Invocation::default()
    };
    let mut run = invocation.start(&dir).map_err(|error| error.to_string())?;
    run.await_output("ready\n", LIMIT)?;
    let begun = Instant::now();
    loop {
        let counted =
            ["processes_total", "repairs_total"].map(|name| endpoint.counter(name, run.pid()));
        if counted == [Ok(Some(2)), Ok(Some(1))] {
            break;
        }
        if begun.elapsed() > LIMIT {
            return Err(format!(
                "processes and repairs of {}: {counted:?}",
                run.pid()
            ));
        }
        thread::sleep(Duration::from_millis(50));
    }
    let events = endpoint.counter("events_total", run.pid())?;
    if events <= Some(12) {
        return Err(format!("{events:?} events"));
    }
    let launcher = run.pid();
    run.say("\n")?;
    let ran = run.wait(LIMIT)?;
    if let Some(events) = endpoint.counter("events_total", launcher)? {
        return Err(format!(
            "launcher {launcher} has ended, with {events} events"
        ));
    }
    drop(endpoint);
    ran.nothing_left(GRACE)?;
    Bench::get().passed(&dir);
    Ok(())
}

fn is_not_listed_after_its_launcher_was_killed() -> Result<(), String> {
    let _group = one_group();
    let (run, dir) = start("status-killed")?;
    listed(&run)?;
    let launcher = run.pid();
    run.signal(Signal::SIGKILL);
    let ran = run.wait(LIMIT)?;
    not_listed(launcher)?;
    ran.nothing_left(GRACE)?;
    Bench::get().passed(&dir);
    Ok(())
}

pub(crate) fn trials() -> Vec<Trial> {
    let trial = |name: &str, case: fn() -> Result<(), String>| {
        Trial::test(format!("outside::{name}"), move || {
            case().map_err(Failed::from)
        })
    };
    vec![
        trial(
            "ps_and_top_list_a_tree_until_it_ends",
            is_listed_until_it_ends,
        ),
        trial(
            "top_counts_for_monitors_what_ended_processes_did",
            is_counted_for_monitors,
        ),
        trial(
            "ps_lists_no_tree_whose_launcher_was_killed",
            is_not_listed_after_its_launcher_was_killed,
        ),
    ]
}
