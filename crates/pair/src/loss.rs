//! Loss: the demo of a server on two hosts, and a client on a third that downloads from it.
//!
//! A bit flips on one disk, and the download stays right. Then the primary's host dies in the middle of
//! another download: its cable is pulled, and its processes are killed. The secondary takes the address and
//! the connection over, and the download completes. The primary's host comes back with its old disk while a client has
//! stopped reading in the middle of a third download; then the other host dies, and that download completes as well.
//!
//! What is left behind: nothing, as hosts.rs has it.
//!
//! Not shown: a primary whose processes die while its kernel lives (that kernel closes the connections).

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use steadfast_digest::vote128;

use crate::cli::Demo;
use crate::error::PairError;
use crate::hosts::{DATA, Host, Images, STRUCK_PAGE, Scratch, cable, run_tool, strike};
use crate::say::say;
use crate::stage::{Stage, bad, lose, lose_as, said, told};

const SERVER: &str = "10.97.0.5:8080";
const SERVER_SIX: &str = "[fd97::5]:8080";
const FILE: &str = "large.bin";
const BYTES: usize = 24 << 20;

/// Bytes of which no two pages are alike.
fn content() -> Vec<u8> {
    let mut state = 1_u64;
    (0..BYTES / 8)
        .flat_map(|_| {
            state = state
                .wrapping_mul(0x5851_f42d_4c95_7f2d)
                .wrapping_add(0x1405_7b7e_f767_814f);
            (state ^ state >> 29).to_le_bytes()
        })
        .collect()
}

/// The third host: a network between all, and a client that does as it is told.
pub(crate) fn client() -> Result<u8, PairError> {
    say!("up");
    let (mut line, mut server) = (String::new(), SERVER);
    loop {
        line.clear();
        if io::stdin().read_line(&mut line).map_err(bad)? == 0 {
            return Ok(0);
        }
        let line = line.trim_end();
        match line.split_once(' ') {
            None if line == "net" => {
                run_tool(Command::new("ip").args(["link", "set", "lo", "up"]))?;
                run_tool(Command::new("ip").args([
                    "link",
                    "add",
                    "steadfast-c",
                    "type",
                    "bridge",
                ]))?;
                run_tool(Command::new("ip").args([
                    "addr",
                    "add",
                    "10.97.0.3/29",
                    "dev",
                    "steadfast-c",
                ]))?;
                for device in ["steadfast-c", "steadfast-ca", "steadfast-cb"] {
                    if device != "steadfast-c" {
                        run_tool(Command::new("ip").args([
                            "link",
                            "set",
                            device,
                            "master",
                            "steadfast-c",
                        ]))?;
                    }
                    run_tool(Command::new("ip").args(["link", "set", device, "up"]))?;
                }
                say!("connected");
            }
            // From here on the server is asked by IPv6.
            None if line == "six" => {
                run_tool(Command::new("ip").args([
                    "-6",
                    "addr",
                    "add",
                    "fd97::3/64",
                    "dev",
                    "steadfast-c",
                    "nodad",
                ]))?;
                server = SERVER_SIX;
                say!("connected");
            }
            // A host is back, with a new cable.
            Some(("cable", device)) => {
                let master = ["link", "set", device, "master", "steadfast-c"];
                run_tool(Command::new("ip").args(master))?;
                run_tool(Command::new("ip").args(["link", "set", device, "up"]))?;
                say!("connected");
            }
            Some(("put", how)) => say!("{}", crate::turns::put(server, how)),
            Some(("ask", times)) => say!("{}", crate::turns::ask(server, times)),
            Some(("get", how)) => match download(how) {
                Ok((digest, longest)) => say!("got {digest:032x} {}", longest.as_millis()),
                Err(error) => say!("failed: {error}"),
            },
            _ => return Err(bad(io::Error::other(format!("what is {line}?")))),
        }
    }
}

/// The digest of the file as it comes, and the longest wait for more of it. The client always reads: one that sleeps finds
/// what came before the outage in its buffer, and sees less of it. `telling`: says when a quarter has come; `resting`: then
/// waits for a line before it reads on.
fn download(how: &str) -> io::Result<(u128, Duration)> {
    // A first packet that is lost is sent again after a second (RFC 6298, 2.1), and then after two more.
    let mut stream = TcpStream::connect_timeout(
        &SERVER.parse().map_err(io::Error::other)?,
        Duration::from_secs(8),
    )?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    // In one piece: the request is in the log as a whole.
    stream.write_all(format!("GET /{FILE} HTTP/1.0\r\nHost: steadfast\r\n\r\n").as_bytes())?;
    let mut all = Vec::with_capacity(BYTES + 4096);
    let mut piece = vec![0; 1 << 16];
    let (mut longest, mut told) = (Duration::ZERO, false);
    loop {
        let began = Instant::now();
        let n = stream.read(&mut piece)?;
        longest = longest.max(began.elapsed());
        if n == 0 {
            break;
        }
        all.extend_from_slice(&piece[..n]);
        if how != "plain" && !told && all.len() > BYTES / 4 {
            say!("a quarter");
            told = true;
            if how == "resting" {
                io::stdin().read_line(&mut String::new())?;
            }
        }
    }
    let end = all
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .ok_or_else(|| io::Error::other("no HTTP"))?;
    Ok((vote128(&all[end + 4..]), longest))
}

fn asked(client: &mut Host, how: &str) -> io::Result<()> {
    client.say(&format!("get {how}"))
}

pub(crate) fn run(options: &Demo) -> Result<u8, PairError> {
    if options.turns {
        return crate::turns::run(options);
    }
    show(options).map(|shown| shown.status)
}

/// What a demo has come to.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) status: u8,
    /// For how long the client had no byte while a host was lost, if its download completed.
    pub(crate) outage_ms: Option<f64>,
    /// For how long the program stood still when that host came back.
    pub(crate) pause_ms: Option<f64>,
}

pub(crate) fn show(options: &Demo) -> Result<Shown, PairError> {
    let scratch = Scratch::new(options.keep.as_ref()).map_err(bad)?;
    let dir = scratch.path.as_path();
    let seed = dir.join("seed");
    let images = Images { dir };
    fs::create_dir_all(&seed).map_err(bad)?;
    fs::create_dir_all(dir.join("witness")).map_err(bad)?;
    let all = content();
    fs::write(seed.join(FILE), &all).map_err(bad)?;
    fs::write(
        seed.join("lighttpd.conf"),
        format!("server.document-root = \"{DATA}\"\nserver.port = 8080\nserver.modules = ()\n"),
    )
    .map_err(bad)?;
    images.make(&seed)?;
    let right = format!("{:032x}", vote128(&all));

    say!(
        "three hosts in namespaces of their own: A and B with a disk and a ledger each, C with a client"
    );
    let Stage {
        more,
        mut a,
        mut b,
        mut c,
    } = Stage::set(dir, options)?;
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let said = || said(dir);
    let told = |error| told(dir, error);

    let deadline = Instant::now() + Duration::from_secs(30);
    let first = loop {
        asked(&mut c, "plain").map_err(told)?;
        let answer = c.line().map_err(told)?;
        if answer.starts_with("got") || Instant::now() > deadline {
            break answer;
        }
        if a.has_ended() || b.has_ended() {
            return Err(told(io::Error::other("a host has ended")));
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    say!(
        "C downloads {BYTES} bytes from {SERVER}:            {}",
        digest(&first)
    );
    let path = b.file(&format!("{DATA}/{FILE}"));
    let (was, is, place) =
        strike(&path, &images.path_of_data("b"), STRUCK_PAGE, false).map_err(bad)?;
    say!(
        "a bit flips on B's disk: page {STRUCK_PAGE} of {FILE}, byte {place} of the image; direct I/O reads {is:#04x}, it was {was:#04x}"
    );
    asked(&mut c, "plain").map_err(told)?;
    let second = c.line().map_err(told)?;
    say!(
        "C downloads it again:                                  {}",
        digest(&second)
    );

    asked(&mut c, "telling").map_err(told)?;
    let quarter = c.line().map_err(told)?;
    let how = lose_as(dir, options.lose, &mut a, &c)?;
    say!("a quarter of another download has come: {how}");
    let third = if quarter == "a quarter" {
        c.line().map_err(told)?
    } else {
        quarter
    };
    say!(
        "the download completes:                                {}, {} ms without a byte",
        digest(&third),
        third.rsplit(' ').next().unwrap_or_default()
    );
    asked(&mut c, "plain").map_err(told)?;
    let fourth = c.line().map_err(told)?;
    say!(
        "and a new one, from B alone:                           {}",
        digest(&fourth)
    );
    lose(&mut a, &c, "steadfast-ca")?;
    let (fifth, sixth) = come_back(dir, &more, &mut b, &mut c).map_err(told)?;
    let said = said();
    crate::say::result(format_args!("{said}"));
    let verdict = [
        (digest(&first) == right, "the first download is wrong"),
        (was != is, "the flip did not reach the device"),
        (
            digest(&second) == right,
            "the download after the flip is wrong",
        ),
        (
            said.contains("repaired, 1 page"),
            "the flip was not repaired",
        ),
        (
            digest(&third) == right,
            "the download that A began did not complete, or is wrong",
        ),
        (digest(&fourth) == right, "B alone does not answer"),
        (
            digest(&fifth) == right,
            "the download during which A came back and B died did not complete, or is wrong",
        ),
        (
            digest(&sixth) == right,
            "A, which came back, does not answer",
        ),
        (
            said.contains("goes on alone, as the witness says, with 1 connections"),
            "B did not take the connection over",
        ),
    ];
    let mut status = 0;
    for (_, what) in verdict.iter().filter(|(holds, _)| !holds) {
        say!("demo: {what}");
        status = 1;
    }
    let last_number = |text: &str| text.rsplit(' ').next().and_then(|ms| ms.parse().ok());
    Ok(Shown {
        status,
        outage_ms: last_number(&third).filter(|_| digest(&third) == right),
        pause_ms: said
            .split_once("the program stood still for ")
            .and_then(|(_, rest)| rest.split_once(" ms"))
            .and_then(|(ms, _)| last_number(ms)),
    })
}

/// A comes back while a client rests in the middle of a download; then B dies. What the client has got in the end, and
/// what it gets from A then.
fn come_back(
    dir: &Path,
    more: &[&str],
    b: &mut Host,
    c: &mut Host,
) -> io::Result<(String, String)> {
    let failed = |error: PairError| io::Error::other(error.to_string());
    let told = |site: &str| fs::read_to_string(dir.join(format!("{site}.err"))).unwrap_or_default();
    let first = told("a");
    let mut a = Host::start_with(dir, "a", &[&["--join"], more].concat())?;
    a.line()?;
    // The old one may lie there still: the kernel takes a namespace apart when it comes to it.
    let number = c.number().to_string();
    let _ = Command::new("nsenter")
        .args(["-t", &number, "-n", "ip", "link", "delete", "steadfast-ca"])
        .output();
    cable([("steadfast-a", a.number()), ("steadfast-ca", c.number())]).map_err(failed)?;
    c.say("cable steadfast-ca")?;
    c.line()?;
    c.say("get resting")?;
    let quarter = c.line()?;
    a.say("net")?;
    a.line()?;
    let deadline = Instant::now() + Duration::from_secs(30);
    let joins = || told("b").contains("the other site is back");
    while !joins() {
        if Instant::now() > deadline || a.has_ended() || b.has_ended() {
            return Err(io::Error::other("A does not come back"));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    say!("a quarter of a third has come, and the client rests: A comes back with its old disk");
    lose(b, c, "steadfast-cb").map_err(failed)?;
    say!("B's cable is pulled, and B is killed; the client reads on");
    c.say("go on")?;
    let fifth = if quarter == "a quarter" {
        c.line()?
    } else {
        quarter
    };
    say!(
        "the download completes:                                {}",
        digest(&fifth)
    );
    c.say("get plain")?;
    let sixth = c.line()?;
    say!(
        "and a new one, from A alone:                           {}",
        digest(&sixth)
    );
    a.kill()?;
    crate::say::result(format_args!("{first}"));
    Ok((fifth, sixth))
}

fn digest(line: &str) -> &str {
    line.strip_prefix("got ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or(line)
}
