//! Loss: the demo of a server on two hosts, and a client on a third that downloads from it.
//!
//! A bit flips on one disk, and the download stays right. Then the primary's host dies in the middle of
//! another download: its cable is pulled, and its processes are killed. The secondary takes the address and
//! the connection over, and the download completes.
//!
//! What is left behind: nothing, as in demo.rs.
//!
//! Not shown: a primary whose processes die while its kernel lives (that kernel closes the connections), failback.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use steadfast_integrity::digest::vote128;

use crate::cli::Demo;
use crate::demo::{DATA, Host, Images, STRUCK_PAGE, Scratch, cable, run_tool, strike};
use crate::error::PairError;

const SERVER: &str = "10.97.0.5:8080";
const FILE: &str = "large.bin";
const BYTES: usize = 24 << 20;

fn bad(source: io::Error) -> PairError {
    PairError::Kernel {
        part: "the demo's processes and files",
        source,
    }
}

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
    println!("up");
    for line in io::stdin().lines() {
        let line = line.map_err(bad)?;
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
                println!("connected");
            }
            Some(("get", how)) => match download(how == "telling") {
                Ok((digest, longest)) => println!("got {digest:032x} {}", longest.as_millis()),
                Err(error) => println!("failed: {error}"),
            },
            _ => return Err(bad(io::Error::other(format!("what is {line}?")))),
        }
    }
    Ok(0)
}

/// The digest of the file as it comes, and the longest wait for more of it. The client always reads: one that sleeps finds
/// what came before the outage in its buffer, and sees less of it. `telling`: says when a quarter has come.
fn download(telling: bool) -> io::Result<(u128, Duration)> {
    let mut stream = TcpStream::connect_timeout(
        &SERVER.parse().map_err(io::Error::other)?,
        Duration::from_secs(1),
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
        if telling && !told && all.len() > BYTES / 4 {
            println!("a quarter");
            told = true;
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
    show(options).map(|(status, _)| status)
}

/// The demo's status, and for how many ms the client had no byte while a host was lost, if its download completed.
pub(crate) fn show(options: &Demo) -> Result<(u8, Option<u64>), PairError> {
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

    println!(
        "three hosts in namespaces of their own: A and B with a disk and a ledger each, C with a client"
    );
    let lost_after = options.lost_after.to_string();
    let more: Vec<&str> = ["--lost-after", &lost_after, "--"]
        .into_iter()
        .chain(options.command.iter().map(String::as_str))
        .collect();
    let mut c = Host::start_with(dir, "c", &[]).map_err(bad)?;
    let mut b = Host::start_with(dir, "b", &more).map_err(bad)?;
    let mut a = Host::start_with(dir, "a", &more).map_err(bad)?;
    let said = || {
        ["a", "b", "c"]
            .map(|site| fs::read_to_string(dir.join(format!("{site}.err"))).unwrap_or_default())
            .concat()
    };
    let told = |error: io::Error| PairError::Kernel {
        part: "the demo's host",
        source: io::Error::other(format!("{error}\n{}", said())),
    };
    for host in [&mut a, &mut b, &mut c] {
        host.line().map_err(told)?;
    }
    cable([("steadfast-a", a.number()), ("steadfast-ca", c.number())])?;
    cable([("steadfast-b", b.number()), ("steadfast-cb", c.number())])?;
    for host in [&mut c, &mut b, &mut a] {
        host.say("net").map_err(told)?;
        host.line().map_err(told)?;
    }

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
    println!(
        "C downloads {BYTES} bytes from {SERVER}:            {}",
        digest(&first)
    );
    let path = b.file(&format!("{DATA}/{FILE}"));
    let (was, is, place) =
        strike(&path, &images.path_of_data("b"), STRUCK_PAGE, false).map_err(bad)?;
    println!(
        "a bit flips on B's disk: page {STRUCK_PAGE} of {FILE}, byte {place} of the image; direct I/O reads {is:#04x}, it was {was:#04x}"
    );
    asked(&mut c, "plain").map_err(told)?;
    let second = c.line().map_err(told)?;
    println!(
        "C downloads it again:                                  {}",
        digest(&second)
    );

    asked(&mut c, "telling").map_err(told)?;
    let quarter = c.line().map_err(told)?;
    // The cable first: a kernel that lives on would close the connections of a process that it kills.
    let pulled = [
        "-t",
        &c.number().to_string(),
        "-n",
        "ip",
        "link",
        "set",
        "steadfast-ca",
        "down",
    ]
    .map(str::to_owned);
    run_tool(Command::new("nsenter").args(&pulled))?;
    a.kill().map_err(bad)?;
    println!("a quarter of another download has come: A's cable is pulled, and A is killed");
    let third = if quarter == "a quarter" {
        c.line().map_err(told)?
    } else {
        quarter
    };
    println!(
        "the download completes:                                {}, {} ms without a byte",
        digest(&third),
        third.rsplit(' ').next().unwrap_or_default()
    );
    asked(&mut c, "plain").map_err(told)?;
    let fourth = c.line().map_err(told)?;
    println!(
        "and a new one, from B alone:                           {}",
        digest(&fourth)
    );
    b.kill().map_err(bad)?;
    let said = said();
    print!("{said}");
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
            said.contains("goes on alone, as the witness says, with 1 connections"),
            "B did not take the connection over",
        ),
    ];
    let mut status = 0;
    for (_, what) in verdict.iter().filter(|(holds, _)| !holds) {
        println!("demo: {what}");
        status = 1;
    }
    let outage = if digest(&third) == right {
        third.rsplit(' ').next().and_then(|ms| ms.parse().ok())
    } else {
        None
    };
    Ok((status, outage))
}

fn digest(line: &str) -> &str {
    line.strip_prefix("got ")
        .and_then(|rest| rest.split(' ').next())
        .unwrap_or(line)
}
