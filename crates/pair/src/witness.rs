//! Witness: who says which of two sites goes on alone when they cannot hear each other.
//!
//! A run of a pair has a name that nobody else has (128 random bits). When a site has lost the other, it
//! writes its letter under that name, if nothing stands there yet: in one step, so that one of two sites
//! succeeds and the other reads who it was. The one that comes second stops. Nothing is ever taken back.
//!
//! ```text
//!   A and B run ──► link cut ──► A: write "A" if absent ──► written: goes on alone
//!                                B: write "B" if absent ──► "A" stands there: stops, status 122
//!                                no answer: the program is held until there is one
//! ```
//!
//! Invariant: of two sites that ask under one name at most one is told to go on, and it is told the same whenever it asks again.
//!
//! Not covered: names and passwords of etcd's users; a site may show a certificate.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::{Value, json};

use crate::cli::Side;
use crate::error::PairError;
use crate::tls;

const ANSWER_LIMIT: Duration = Duration::from_secs(2);

#[derive(Debug, Clone)]
pub(crate) enum Witness {
    /// The loss of a site stops the other one.
    None,
    /// A directory of a third machine that both sites mount.
    Directory(PathBuf),
    /// Etcd's JSON gateway, version 3.4 or later.
    Etcd(Etcd),
}

#[derive(Debug, Clone)]
pub(crate) struct Etcd {
    /// HOST:PORT.
    host: String,
    tls: Option<Arc<ClientConfig>>,
}

impl Witness {
    pub(crate) fn of(side: &Side) -> Result<Self, PairError> {
        let own = side
            .witness_cert
            .as_deref()
            .zip(side.witness_key.as_deref());
        let config = side.witness_ca.as_ref();
        let config = config.map(|ca| tls::client(ca, own)).transpose()?;
        Self::parse(&side.witness, config)
    }

    /// `config`: for https, which nothing else has.
    fn parse(text: &str, config: Option<ClientConfig>) -> Result<Self, PairError> {
        if text == "none" {
            return Ok(Self::None);
        }
        if let Some(path) = text
            .strip_prefix("dir:")
            .filter(|path| path.starts_with('/'))
        {
            return Ok(Self::Directory(path.into()));
        }
        let (rest, tls) = match (text.split_once("://"), config) {
            (Some(("http", rest)), None) => (rest, None),
            (Some(("https", rest)), Some(config)) => (rest, Some(Arc::new(config))),
            _ => ("", None),
        };
        let host = rest.trim_end_matches('/');
        if host.contains(':') && !host.contains('/') {
            let host = host.to_owned();
            return Ok(Self::Etcd(Etcd { host, tls }));
        }
        Err(PairError::Witness {
            found: text.to_owned(),
        })
    }

    /// Whether the witness can be asked at all, before anything depends on it. One that is slow is asked again, for so long.
    pub(crate) fn check(&self, patience: Duration) -> io::Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.probe() {
                Err(error) if is_late(&error) && Instant::now() < deadline => {}
                other => return other,
            }
        }
    }

    fn probe(&self) -> io::Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Directory(dir) => {
                let probe = dir.join(format!("steadfast-pair-probe-{}", std::process::id()));
                std::fs::write(&probe, "probe")?;
                match std::fs::remove_file(probe) {
                    // The other site's: numbers of processes are equal in containers.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    other => other,
                }
            }
            Self::Etcd(etcd) => {
                let key = base64(b"steadfast/pair/probe");
                etcd.call("/v3/kv/range", &json!({ "key": key })).map(drop)
            }
        }
    }

    /// Whether `site` is the one that goes on alone. Asked again, it answers the same.
    ///
    /// # Errors
    /// When the witness does not answer: then nobody knows.
    pub(crate) fn claim(&self, run: &str, site: char) -> io::Result<bool> {
        match self {
            Self::None => Ok(false),
            Self::Directory(dir) => {
                let claim = dir.join(format!("steadfast-pair-{run}"));
                let own = dir.join(format!("steadfast-pair-{run}-{site}"));
                let mut file = std::fs::File::create(&own)?;
                file.write_all(site.to_string().as_bytes())?;
                file.sync_all()?;
                // In one step, on NFS as well, where O_EXCL may be told twice (open(2), NOTES).
                let linked = std::fs::hard_link(&own, &claim);
                let _ = std::fs::remove_file(&own);
                // What a site was told stays true when the machine of the directory fails.
                std::fs::File::open(dir)?.sync_all()?;
                match linked {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => return Err(error),
                }
                Ok(std::fs::read_to_string(claim)? == site.to_string())
            }
            Self::Etcd(etcd) => {
                let key = base64(format!("steadfast/pair/{run}").as_bytes());
                let value = base64(site.to_string().as_bytes());
                let answer = etcd.call(
                    "/v3/kv/txn",
                    &json!({
                        "compare": [{ "key": key, "target": "VERSION", "result": "EQUAL", "version": "0" }],
                        "success": [{ "requestPut": { "key": key, "value": value } }],
                        "failure": [{ "requestRange": { "key": key } }],
                    }),
                )?;
                // gRPC's JSON leaves out what is false.
                if answer["succeeded"] == json!(true) {
                    return Ok(true);
                }
                match answer["responses"][0]["response_range"]["kvs"][0]["value"].as_str() {
                    Some(holder) => Ok(holder == value),
                    None => Err(io::Error::other("etcd answers neither yes nor who")),
                }
            }
        }
    }
}

impl Etcd {
    /// One question to etcd's gateway.
    fn call(&self, path: &str, body: &Value) -> io::Result<Value> {
        let mut addresses = self.host.to_socket_addrs()?;
        let address = addresses
            .next()
            .ok_or_else(|| io::Error::other("no address by this name"))?;
        let stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_write_timeout(Some(ANSWER_LIMIT))?;
        let Some(config) = &self.tls else {
            return ask(stream, &self.host, path, body);
        };
        let (name, _) = self.host.rsplit_once(':').unwrap_or((&self.host, ""));
        let name = ServerName::try_from(name.trim_matches(['[', ']']).to_owned())
            .map_err(io::Error::other)?;
        let connection =
            ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
        ask(StreamOwned::new(connection, stream), &self.host, path, body)
    }
}

/// No answer came in time (a socket says either, by read(2) and by connect(2)).
fn is_late(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

/// HTTP/1.0, so that the answer ends with the connection.
fn ask(mut stream: impl Read + Write, host: &str, path: &str, body: &Value) -> io::Result<Value> {
    let body = body.to_string();
    write!(
        stream,
        "POST {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = String::new();
    stream.take(1 << 20).read_to_string(&mut answer)?;
    let (head, text) = answer
        .split_once("\r\n\r\n")
        .ok_or_else(|| io::Error::other("this is not HTTP"))?;
    if head.split_ascii_whitespace().nth(1) != Some("200") {
        return Err(io::Error::other(
            head.lines().next().unwrap_or_default().to_owned(),
        ));
    }
    serde_json::from_str(text).map_err(io::Error::other)
}

/// As etcd's JSON has bytes (RFC 4648, section 4).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let word = (0..3).fold(0_usize, |word, index| {
            word << 8 | usize::from(group.get(index).copied().unwrap_or(0))
        });
        for digit in 0..4 {
            text.push(if digit <= group.len() {
                char::from(DIGITS[word >> (18 - 6 * digit) & 63])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_as_the_rfc_has_it() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
        ] {
            assert_eq!(base64(bytes.as_bytes()), text);
        }
    }

    #[test]
    fn one_of_two_sites_goes_on_however_often_they_ask() {
        let dir = std::env::temp_dir().join(format!("witness-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let witness = Witness::Directory(dir.clone());
        // Two sites of equal process numbers, at once.
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        witness.check(Duration::ZERO).expect("it can be written");
                    }
                });
            }
        });
        for run in 0..200 {
            let run = run.to_string();
            let asked: Vec<bool> = std::thread::scope(|scope| {
                let ask = ['A', 'B'].map(|site| {
                    let (witness, run) = (&witness, &run);
                    scope.spawn(move || witness.claim(run, site).expect("it answers"))
                });
                ask.map(|thread| thread.join().expect("no panic")).to_vec()
            });
            assert_eq!(asked.iter().filter(|won| **won).count(), 1, "{asked:?}");
            assert_eq!(witness.claim(&run, 'A').expect("it answers"), asked[0]);
            assert_eq!(witness.claim(&run, 'B').expect("it answers"), asked[1]);
        }
        std::fs::remove_dir_all(dir).expect("clean");
    }

    /// Answers as etcd's gateway does, which leaves out what is false, and knows of one key.
    fn gateway(questions: usize) -> (String, std::thread::JoinHandle<Vec<Value>>) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound").to_string();
        let answers = std::thread::spawn(move || {
            let (mut holder, mut asked) = (None, Vec::new());
            for _ in 0..questions {
                let (mut stream, _) = listener.accept().expect("a client");
                let mut text = Vec::new();
                let mut piece = [0; 4096];
                let body = loop {
                    let n = stream.read(&mut piece).expect("a question");
                    text.extend_from_slice(&piece[..n]);
                    let so_far = String::from_utf8_lossy(&text).into_owned();
                    if let Some(body) = so_far
                        .split_once("\r\n\r\n")
                        .and_then(|(_, body)| serde_json::from_str::<Value>(body).ok())
                    {
                        break body;
                    }
                };
                let answer = match &holder {
                    None => {
                        holder = Some(body["success"][0]["requestPut"]["value"].clone());
                        json!({ "header": {}, "succeeded": true, "responses": [{ "response_put": {} }] })
                    }
                    Some(holder) => {
                        json!({ "header": {}, "responses": [{ "response_range": { "kvs": [{ "value": holder }] } }] })
                    }
                };
                asked.push(body);
                let answer = answer.to_string();
                write!(
                    stream,
                    "HTTP/1.0 200 OK\r\nContent-Length: {}\r\n\r\n{answer}",
                    answer.len()
                )
                .expect("it reads");
            }
            asked
        });
        (address, answers)
    }

    fn clear(host: String) -> Witness {
        Witness::Etcd(Etcd { host, tls: None })
    }

    #[test]
    fn etcd_decides_by_who_comes_first_and_silence_is_no_answer() {
        let (address, answers) = gateway(3);
        let witness = clear(address);
        assert!(witness.claim("run", 'B').expect("it answers"));
        assert!(!witness.claim("run", 'A').expect("it answers"));
        assert!(
            witness.claim("run", 'B').expect("it answers"),
            "asked again, the same"
        );
        let asked = answers.join().expect("no panic");
        assert_eq!(
            asked[0]["compare"][0]["version"], "0",
            "a key that nobody has written"
        );
        assert!(
            witness.claim("run", 'A').is_err(),
            "nobody listens any more"
        );
    }

    #[test]
    fn what_is_no_witness_is_refused() {
        for text in [
            "dir:relative",
            "https://etcd:2379",
            "http://etcd",
            "http://etcd:2379/v3",
            "etcd:2379",
            "",
        ] {
            assert!(Witness::parse(text, None).is_err(), "{text}");
        }
        let Ok(Witness::Etcd(etcd)) = Witness::parse("http://10.0.0.9:2379/", None) else {
            panic!("etcd");
        };
        assert_eq!(etcd.host, "10.0.0.9:2379");
        assert!(etcd.tls.is_none());
    }
}
