//! A service on a C++ library as Debian packages it (cpp-httplib), its source untouched, hardened by a policy file:
//! requests over a socket must be answered as by the plain build.
//!
//! Not covered: the library itself, which lies in a shared object outside the handlers.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use libtest_mimic::Failed;

use crate::bench::{Bench, workspace};
use crate::harden::{build, compiler};

/// Requests of one conversation: enough that the tree of accounts is rebalanced in every way.
const REQUESTS: u64 = 400;
/// Nothing is decided by it: a service that is stuck must end the test.
const STUCK: Duration = Duration::from_secs(60);

/// Killed when the test is over, however it ends.
struct Service {
    child: Child,
    port: u16,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(program: &Path) -> Result<Service, Failed> {
    let mut child = Command::new(program)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let out = child.stdout.take();
    let mut service = Service { child, port: 0 };
    let mut line = String::new();
    BufReader::new(out.ok_or("no pipe")?).read_line(&mut line)?;
    service.port = line.trim().parse()?;
    Ok(service)
}

/// Method, path and body of the request with this number.
fn request(number: u64) -> (&'static str, String, String) {
    // Knuth's generator modulo 2^64, its upper half.
    let random = (number + 1).wrapping_mul(6_364_136_223_846_793_005) >> 32;
    let account = format!("/account/name_{}", random % 60);
    match random / 64 % 20 {
        0..=11 => ("PUT", account, (random / 2048 % 900).to_string()),
        12 => ("PUT", account, "-100000".to_owned()),
        13 => ("PUT", account, "nothing".to_owned()),
        14 | 15 => ("GET", account, String::new()),
        16..=18 => ("DELETE", account, String::new()),
        _ => ("GET", "/list".to_owned(), String::new()),
    }
}

/// Status line and body of every reply.
fn converse(program: &Path) -> Result<Vec<(String, String)>, Failed> {
    let mut service = start(program)?;
    let mut replies = Vec::new();
    for number in 0..REQUESTS {
        let (method, path, body) = request(number);
        let mut stream = TcpStream::connect(("127.0.0.1", service.port))?;
        stream.set_read_timeout(Some(STUCK))?;
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let whole = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(whole.as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map_err(|why| {
            format!(
                "{}, request {number}, {method} {path}: {why}",
                program.display()
            )
        })?;
        let (head, body) = text.split_once("\r\n\r\n").ok_or("a reply without body")?;
        let status = head.lines().next().unwrap_or_default();
        replies.push((status.to_owned(), body.to_owned()));
    }
    service.child.kill()?;
    let mut said = String::new();
    if let Some(mut err) = service.child.stderr.take() {
        err.read_to_string(&mut said)?;
    }
    if said.is_empty() {
        Ok(replies)
    } else {
        Err(said.into())
    }
}

/// The same replies, and nothing that a handler reaches is left out.
pub(crate) fn http() -> Result<(), Failed> {
    let dir = Bench::get().case_dir("harden-http");
    let folder = workspace().join("cc/tests");
    let source: [PathBuf; 1] = [folder.join("http.cc")];
    let flags = [
        "-std=c++17",
        "-O2",
        "-pthread",
        "-lcpp-httplib",
        "-lssl",
        "-lcrypto",
    ];
    let (plain, hardened) = (dir.join("plain"), dir.join("hardened"));
    build(compiler(false, true), &flags, &source, &plain)?;
    let mut ours = compiler(true, true);
    ours.env("STEADFAST_POLICY", folder.join("http.policy"));
    build(ours, &flags, &source, &hardened)?;
    let coverage = Command::new(Bench::get().binary())
        .args(["cc", "--coverage=json"])
        .arg(&hardened)
        .output()?;
    let json: serde_json::Value = serde_json::from_slice(&coverage.stdout)?;
    if json["handlers"].as_array().map(Vec::len) != Some(4) {
        return Err(format!("{json:#}").into());
    }
    let (right, found) = (converse(&plain)?, converse(&hardened)?);
    for status in ["200", "400", "404"] {
        if !right.iter().any(|(line, _)| line.contains(status)) {
            return Err(format!("no request was answered with {status}").into());
        }
    }
    if let Some(at) = (0..right.len()).find(|&at| right[at] != found[at]) {
        let (method, path, _) = request(at as u64);
        return Err(format!(
            "request {at}, {method} {path}: {:?} and {:?}",
            right[at], found[at]
        )
        .into());
    }
    Bench::get().passed(&dir);
    Ok(())
}
