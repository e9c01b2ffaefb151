//! HTTP/2: nghttpd, asked by clients of others (curl, nghttp and h2load), its answers compared with the plain build's.
//!
//! Each question goes to both builds, started alike over the same files. Compared are the status, every
//! header field in its order and the body; but for the value of `date`, which is the time. Bodies
//! are compared with the files as well.
//!
//! Two ways to start it: as it comes, and with uploads sent back, pushed files, trailers, padding
//! and a log of every frame, which is written by handlers. Then a load over several connections
//! with several streams each, of which every request must succeed.
//!
//! Not covered: TLS (its code lies in libraries, outside handlers).

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail, ensure};

use super::{Replayed, Settings, WRONG_MAX};
use crate::inputs::Rng;
use crate::load::process::{Running, Split, free_address};

/// A client gives up after so many seconds: no answer takes that long.
const PATIENCE_S: &str = "20";

/// A question for curl: its options, and the path.
struct Question {
    options: Vec<String>,
    path: &'static str,
    /// What must come back as body, where it is known.
    body: Option<PathBuf>,
}

/// Plays the questions and the load to both programs.
///
/// # Errors
/// When a client is missing, or a server cannot be started or ends.
pub fn play(plain: &Path, program: &Path, dir: &Path, settings: Settings) -> Result<Replayed> {
    ensure!(
        !settings.envelope,
        "nghttpd has no message envelope: it belongs to memcached's and DNS's protocols"
    );
    let place = dir.join("nghttpd-files");
    write_files(&place, settings.seed)?;
    let split = Split::shared(settings.threads)?;
    let mut found = Replayed::default();
    let more = ["-v", "--echo-upload", "--trailer", "x-end: yes", "-b", "13"];
    for options in [&[][..], &more, &["--no-content-length"]] {
        let log = |name: &str| dir.join(format!("nghttpd-{name}.log"));
        let mut right = start(plain, &split, &place, options, &log("plain"))?;
        let mut tried = start(program, &split, &place, options, &log("tried"))?;
        for question in questions(&place, options.contains(&"--echo-upload")) {
            let name = format!("{} {:?} {options:?}", question.path, question.options);
            let expected = ask(right.address, &question)?;
            let answer = ask(tried.address, &question)?;
            found.requests += 1;
            if answer != expected {
                let said = last_line(&log("tried"));
                found.wrong.push(format!(
                    "{name}: another answer than the plain build's ({said})"
                ));
            }
            if let Some(file) = &question.body
                && !has(&answer, &fs::read(file)?)
            {
                found.wrong.push(format!("{name}: not the file's bytes"));
            }
            if found.wrong.len() >= WRONG_MAX {
                return Ok(found);
            }
        }
        right.check_alive()?;
        tried.check_alive()?;
    }
    // A push, which curl does not take: nghttp asks for it and gets both files.
    let push = [
        "-p",
        "/index.html=/small.txt",
        "-p",
        "/=/small.txt,/big.bin",
    ];
    let (mut got, mut logs) = (Vec::new(), Vec::new());
    for program in [plain, program] {
        let log = dir.join("nghttpd-push.log");
        let mut server = start(program, &split, &place, &push, &log)?;
        let address = server.address;
        let out = client("nghttp", &["-t", PATIENCE_S, &format!("http://{address}/")])?;
        server.check_alive()?;
        got.push(out);
        logs.push(log);
    }
    found.requests += 3;
    let mut pushed = fs::read(place.join("index.html"))?.len();
    pushed += fs::read(place.join("small.txt"))?.len() + fs::read(place.join("big.bin"))?.len();
    for out in &got {
        if out.len() != pushed {
            found.wrong.push(format!(
                "pushed files: {pushed} bytes are right, {} came",
                out.len()
            ));
        }
    }
    let threads = settings.threads.to_string();
    let mut server = start(
        program,
        &split,
        &place,
        &["-n", &threads],
        &dir.join("nghttpd-load.log"),
    )?;
    let (n, address) = (settings.length.max(8).to_string(), server.address);
    let paths = ["small.txt", "", "big.bin", "none"].map(|path| format!("http://{address}/{path}"));
    let mut words = vec!["-n", &n, "-c", "8", "-m", "16", "-T", PATIENCE_S];
    words.extend(paths.iter().map(String::as_str));
    let report = String::from_utf8_lossy(&client("h2load", &words)?).into_owned();
    found.requests += settings.length.max(8) as u64;
    let whole = format!("{n} done");
    let counts = report
        .lines()
        .find(|line| line.starts_with("requests:"))
        .unwrap_or_default();
    // h2load calls a 404 failed; what it must not see is a request without an answer.
    if !counts.contains(&whole) || !counts.contains(" 0 errored, 0 timeout") {
        found.wrong.push(format!(
            "the load: {counts}: {}",
            last_line(&dir.join("nghttpd-load.log"))
        ));
    }
    server.check_alive()?;
    Ok(found)
}

fn start(
    program: &Path,
    split: &Split,
    place: &Path,
    options: &[&str],
    log: &Path,
) -> Result<Running> {
    let address = free_address()?;
    let mut args = vec![
        "--no-tls".to_owned(),
        "-a".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    args.extend(["-d".to_owned(), place.display().to_string()]);
    args.extend(options.iter().map(|&option| option.to_owned()));
    args.push(address.port().to_string());
    Running::start(program, &args, address, split, log, |address| {
        std::net::TcpStream::connect(address).is_ok()
    })
}

fn write_files(place: &Path, seed: u64) -> Result<()> {
    fs::create_dir_all(place.join("folder"))?;
    let mut rng = Rng::new(seed);
    let mut bytes = |n: usize| {
        (0..n)
            .map(|_| rng.next_u64().to_le_bytes()[0])
            .collect::<Vec<u8>>()
    };
    fs::write(place.join("small.txt"), bytes(138))?;
    fs::write(place.join("empty.css"), "")?;
    // More than one connection window of 65,535 bytes: flow control has a part in it.
    fs::write(place.join("big.bin"), bytes(300_000))?;
    fs::write(place.join("index.html"), bytes(1000))?;
    fs::write(place.join("folder/a b.txt"), bytes(20_000))?;
    Ok(())
}

fn questions(place: &Path, echo: bool) -> Vec<Question> {
    let words = |text: &[&str]| {
        text.iter()
            .map(|&word| word.to_owned())
            .collect::<Vec<String>>()
    };
    let file = |name: &str| Some(place.join(name));
    let ask = |options: Vec<String>, path, body| Question {
        options,
        path,
        body,
    };
    let upload = |name: &str| format!("@{}", place.join(name).display());
    let mut all = vec![
        ask(vec![], "/small.txt", file("small.txt")),
        ask(vec![], "/", file("index.html")),
        ask(vec![], "/index.html?query=1", file("index.html")),
        ask(vec![], "/big.bin", file("big.bin")),
        ask(vec![], "/empty.css", None),
        ask(vec![], "/folder/a%20b.txt", file("folder/a b.txt")),
        ask(vec![], "/folder/../small.txt", file("small.txt")),
        ask(vec![], "/folder", None),
        ask(vec![], "/none", None),
        ask(vec![], "/%5c", None),
        ask(words(&["--path-as-is"]), "/../../../etc/passwd", None),
        ask(words(&["-I"]), "/big.bin", None),
        ask(
            words(&["-H", "if-modified-since: Fri, 01 Jan 2100 00:00:00 GMT"]),
            "/small.txt",
            None,
        ),
        ask(
            words(&["-H", "if-modified-since: no date"]),
            "/small.txt",
            file("small.txt"),
        ),
        ask(
            words(&["-H", &format!("x-long: {}", "y".repeat(7000))]),
            "/small.txt",
            file("small.txt"),
        ),
    ];
    for name in ["small.txt", "big.bin", "empty.css"] {
        let body = if echo { file(name) } else { file("small.txt") };
        all.push(ask(
            words(&["--data-binary", &upload(name)]),
            "/small.txt",
            body,
        ));
    }
    all.push(ask(
        words(&[
            "-X",
            "PUT",
            "-H",
            "expect: 100-continue",
            "--data-binary",
            &upload("big.bin"),
        ]),
        "/new",
        echo.then(|| place.join("big.bin")),
    ));
    all
}

/// How the client ended, status, header fields and body, without the time. A stream that the server ends early (as told,
/// by --early-response) is an answer as well.
fn ask(address: SocketAddr, question: &Question) -> Result<Vec<u8>> {
    let url = format!("http://{address}{}", question.path);
    let mut words = vec![
        "-s",
        "-S",
        "-i",
        "--http2-prior-knowledge",
        "-m",
        PATIENCE_S,
    ];
    words.extend(question.options.iter().map(String::as_str));
    words.push(&url);
    let out = run("curl", &words)?;
    let mut answer = format!("{}\n", out.status).into_bytes();
    for line in out.stdout.split_inclusive(|&byte| byte == b'\n') {
        if line.starts_with(b"date: ") {
            answer.extend_from_slice(b"date\n");
        } else {
            answer.extend_from_slice(&without(line, address));
        }
    }
    Ok(answer)
}

/// Whether the body is there: trailers follow it, and where they are shown with it.
fn has(answer: &[u8], body: &[u8]) -> bool {
    body.is_empty() || answer.windows(body.len()).any(|bytes| bytes == body)
}

/// The line without the server's port, which redirections and the pages of errors name.
fn without(line: &[u8], address: SocketAddr) -> Vec<u8> {
    match std::str::from_utf8(line) {
        Ok(text) => text
            .replace(&address.port().to_string(), "PORT")
            .into_bytes(),
        Err(_) => line.to_vec(),
    }
}

fn client(program: &str, words: &[&str]) -> Result<Vec<u8>> {
    let out = run(program, words)?;
    if !out.status.success() {
        bail!(
            "{program} ended with {}: {}",
            out.status,
            String::from_utf8_lossy(&out.stderr)
        );
    }
    Ok(out.stdout)
}

fn run(program: &str, words: &[&str]) -> Result<Output> {
    Command::new(program).args(words).output().with_context(|| {
        format!("{program} could not be started\n  fix:   apt-get install curl nghttp2-client")
    })
}

fn last_line(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    text.unwrap_or_default()
        .lines()
        .last()
        .unwrap_or_default()
        .to_owned()
}
