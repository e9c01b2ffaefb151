//! Demo: two hosts on one machine, and a bit that flips on the disk of one of them.
//!
//! Each host is a network namespace and a mount namespace of its own, with two images: data and
//! ledger. Nothing but a veth pair connects them. The bit flips in the image, below the file
//! system and the page cache, and is read back by direct I/O before anything else happens.
//!
//! What is left behind: nothing (hosts.rs).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::cli::{Demo, DemoHost};
use crate::error::PairError;
use crate::hosts::{
    DATA, Host, Images, LIMIT, SCHEMA, STRUCK_BIT, STRUCK_BYTE, STRUCK_PAGE, Scratch, check,
    connect, run_tool, sqlite, strike,
};
use crate::page::PAGE;
use crate::say::say;

const LEDGER: &str = "/mnt/ledger";

/// The life of one host: network and disks, then its side of the pair.
pub(crate) fn host(host: &DemoHost) -> Result<u8, PairError> {
    if host.site == "c" {
        return crate::loss::client();
    }
    let first = host.site == "a";
    let (own, other) = if first {
        ("10.97.0.1", "10.97.0.2")
    } else {
        ("10.97.0.2", "10.97.0.1")
    };
    let bad = |source| PairError::Kernel {
        part: "the demo's host",
        source,
    };
    say!("up");
    let mut line = String::new();
    // One byte at a time: what comes behind this line is the program's.
    while !line.ends_with('\n') {
        let mut byte = [0];
        let n = File::open("/proc/self/fd/0")
            .and_then(|mut file| file.read(&mut byte))
            .map_err(bad)?;
        if n == 0 {
            return Ok(1);
        }
        line.push(char::from(byte[0]));
    }
    let device = format!("steadfast-{}", host.site);
    run_tool(Command::new("ip").args(["link", "set", "lo", "up"]))?;
    run_tool(Command::new("ip").args(["addr", "add", &format!("{own}/29"), "dev", &device]))?;
    run_tool(Command::new("ip").args(["link", "set", &device, "up"]))?;
    let address = if host.six {
        let own = if first { "fd97::1/64" } else { "fd97::2/64" };
        run_tool(Command::new("ip").args(["-6", "addr", "add", own, "dev", &device, "nodad"]))?;
        format!("fd97::5/64@{device}")
    } else {
        format!("10.97.0.5/29@{device}")
    };
    run_tool(Command::new("mount").args(["-t", "tmpfs", "steadfast", "/mnt"]))?;
    for (name, at) in [("data", DATA), ("ledger", LEDGER)] {
        fs::create_dir_all(at).map_err(bad)?;
        let image = host.dir.join(format!("{name}-{}.img", host.site));
        // Direct I/O: the image has no page cache of its own between the device and the file system.
        let device = run_tool(
            Command::new("losetup")
                .args(["--find", "--show", "--direct-io=on"])
                .arg(&image),
        )?;
        let mounted = run_tool(Command::new("mount").args(["-t", "ext4", &device, at]));
        // From now on the device goes with its last user.
        run_tool(Command::new("losetup").args(["--detach", &device]))?;
        mounted?;
    }
    std::env::set_current_dir(DATA).map_err(bad)?;
    say!("mounted");
    if host.bare {
        return Err(bad(Command::new("sqlite3").args(["-batch", "x.db"]).exec()));
    }
    let own_file = fs::read_link("/proc/self/exe").map_err(bad)?;
    let mut command = Command::new(own_file);
    if host.join {
        command.args(["join", "--peer", &format!("{other}:7450")]);
        command.args(["--listen", &format!("{own}:7450")]);
    } else if first {
        command.args(["primary", "--peer", &format!("{other}:7450")]);
    } else {
        command.args([
            "secondary",
            "--peer",
            &format!("{other}:7450"),
            "--listen",
            &format!("{own}:7450"),
        ]);
    }
    command.args(["--ledger", LEDGER, "--data", DATA]);
    if host.command.is_empty() {
        command.args(["--", "sqlite3", "-batch", "x.db"]);
    } else {
        command.args([
            "--lost-after",
            &host.lost_after.to_string(),
            "--address",
            &address,
        ]);
        command
            .arg("--witness")
            .arg(format!("dir:{}", host.dir.join("witness").display()))
            .args(["--hold-acks", host.hold_acks.word()]);
        command.arg("--").args(&host.command);
    }
    Err(bad(command.exec()))
}

/// A digest of all content, by sqlite3 itself, on a connection that has no page in its cache.
const ASK: &str = ".open x.db\n.sha3sum";

fn wait_for(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    while Instant::now() < deadline {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

pub(crate) fn run(options: &Demo) -> Result<u8, PairError> {
    check()?;
    if !options.command.is_empty() {
        return crate::loss::run(options);
    }
    let bad = |source| PairError::Kernel {
        part: "the demo's processes and files",
        source,
    };
    let scratch = Scratch::new(options.keep.as_ref()).map_err(bad)?;
    let dir = scratch.path.as_path();
    let seed = dir.join("seed");
    fs::create_dir_all(&seed).map_err(bad)?;
    let _ = fs::remove_file(seed.join("x.db"));
    sqlite(&seed, "x.db", SCHEMA)?;
    let right = sqlite(&seed, "x.db", ".sha3sum")?;
    let images = Images { dir };
    images.make(&seed)?;

    let struck = if options.strike.eq_ignore_ascii_case("a") {
        "a"
    } else {
        "b"
    };
    say!(
        "two hosts in namespaces of their own, a disk image and a ledger image each, a veth pair between them"
    );
    let mut b = Host::start(dir, "b", false).map_err(bad)?;
    let mut a = Host::start(dir, "a", false).map_err(bad)?;
    let told = |error: io::Error| {
        let text = ["a", "b"]
            .map(|site| fs::read_to_string(dir.join(format!("{site}.err"))).unwrap_or_default())
            .concat();
        PairError::Kernel {
            part: "the demo's host",
            source: io::Error::other(format!("{error}\n{text}")),
        }
    };
    connect(&mut a, &mut b).map_err(told)?;

    a.say(ASK).map_err(told)?;
    let before = a.line().map_err(told)?;
    say!("sqlite3 runs on both; the content of x.db:              {before}");
    let path = if struck == "a" { &a } else { &b }.file(&format!("{DATA}/x.db"));
    let (was, is, place) =
        strike(&path, &images.path("data", struck), STRUCK_PAGE, false).map_err(bad)?;
    say!(
        "bit {STRUCK_BIT} flips on {}'s disk: page {STRUCK_PAGE} of x.db, byte {place} of the image; direct I/O reads {is:#04x}, it was {was:#04x}",
        struck.to_uppercase()
    );
    if was == is {
        return Err(PairError::Bug("the flip did not reach the device".into()));
    }
    let copy = seed.join("struck.db");
    fs::copy(seed.join("x.db"), &copy)
        .and_then(|_| {
            OpenOptions::new()
                .write(true)
                .open(&copy)?
                .write_all_at(&[is], STRUCK_PAGE * PAGE as u64 + STRUCK_BYTE)
        })
        .map_err(bad)?;
    let alone = sqlite(&seed, "struck.db", ".sha3sum")?;
    say!("sqlite3 alone on such a disk answers, without an error: {alone}");

    a.say(ASK).map_err(told)?;
    let after = a.line().map_err(told)?;
    say!("the pair answers:                                       {after}");
    let healed = crate::disk::page_on_device(&path, STRUCK_PAGE).map_err(bad)?;
    let healed = healed.get(usize::try_from(STRUCK_BYTE).expect("below a page")) == Some(&was);
    let (was_below, is_below, place) =
        strike(&path, &images.path("data", struck), STRUCK_PAGE + 1, true).map_err(bad)?;
    say!(
        "another bit flips, byte {place} of the image: {is_below:#04x}, it was {was_below:#04x}; the page cache hides it, and nobody reads it"
    );
    let scrubbed = wait_for(LIMIT / 4, || {
        let page = crate::disk::page_on_device(&path, STRUCK_PAGE + 1).unwrap_or_default();
        page.get(usize::try_from(STRUCK_BYTE).expect("below a page")) == Some(&was_below)
    });
    a.say("INSERT INTO t VALUES(1000, 'after the repair');\nPRAGMA integrity_check;\n.quit")
        .map_err(told)?;
    let sound = a.line().map_err(told)?;
    let codes = [a.wait().map_err(told)?, b.wait().map_err(told)?];
    let said = fs::read_to_string(dir.join("a.err")).unwrap_or_default();
    crate::say::result(format_args!("{said}"));
    let verdict = [
        (
            before == right,
            "the pair read something else than sqlite3 alone before the flip",
        ),
        (
            alone != right,
            "the flip did not change what sqlite3 alone reads",
        ),
        (after == right, "the pair's answer is wrong"),
        (healed, "the page on the struck disk is not repaired"),
        (sound == "ok", "sqlite3 finds the database damaged"),
        (
            codes == [Some(0), Some(0)],
            "one of the two sites did not end well",
        ),
        (said.contains("repaired"), "nothing was reported"),
        (
            was_below != is_below && scrubbed && said.contains("scrubber: disk of"),
            "the scrubber has not repaired what the page cache hides",
        ),
    ];
    for (_, what) in verdict.iter().filter(|(holds, _)| !holds) {
        say!("demo: {what}");
    }
    if verdict.iter().any(|(holds, _)| !holds) {
        say!(
            "{}",
            fs::read_to_string(dir.join("b.err")).unwrap_or_default()
        );
        return Ok(1);
    }
    say!(
        "the page on {}'s disk is right again; nothing is left behind",
        struck.to_uppercase()
    );
    Ok(0)
}
