//! RDGX beside servers that vote on no object: one memcached, one yrmcds, and three of etcd, in turns.
//!
//! etcd is asked over HTTP, by its own gateway of JSON, since it speaks no protocol of memcached's: a request costs it more than its own
//! clients' would. Its log is in a file system in memory, as a group of `--local` keeps its own in memory.
//!
//! Invariants
//!  1. What etcd answers is compared with what was stored, as every other reply is.
//!  2. A member ends with its group, and its directory is removed.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use steadfast_report::published::Row;
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::load::process::free_address;

use super::load::Shape;
use super::{Group, KEY_BYTES, KEYS, MIXES, Plan, READY, VALUE_BYTES, of_mix, row};
use crate::process::dies_with_us;

const CLIENTS: usize = 30;
const COLUMNS: [&str; 4] = ["rdgx", "memcached", "yrmcds", "etcd"];

pub(super) fn rivals(plan: &Plan, says: &mut dyn FnMut(&str), rows: &mut Vec<Row>) -> Result<()> {
    let named = |given: &Option<PathBuf>, name: &str| given.clone().unwrap_or_else(|| name.into());
    let memcached = named(&plan.memcached, "memcached");
    let etcd = named(&plan.etcd, "etcd");
    let yrmcds = named(&plan.yrmcds, "/usr/sbin/yrmcdsd");
    let mut rates: BTreeMap<(&str, &str), Vec<f64>> = BTreeMap::new();
    for round in 0..plan.rounds {
        for turn in 0..COLUMNS.len() {
            let column = COLUMNS[(round + turn) % COLUMNS.len()];
            says(&format!("round {} of {}: {column}", round + 1, plan.rounds));
            let seed = plan.seed + round as u64;
            let found = match column {
                "etcd" => Etcd::start(&etcd)?.rates(plan.slice, seed)?,
                "yrmcds" => {
                    let place =
                        Place(std::env::temp_dir().join(format!("{NAME}{}", std::process::id())));
                    ours(&yrmcds_at(&yrmcds, &place.0)?, plan.slice, seed)?
                }
                "memcached" => ours(&Group::memcached(&memcached)?, plan.slice, seed)?,
                _ => ours(&Group::start(plan, "RDGX")?, plan.slice, seed)?,
            };
            for ((mix, _), rate) in MIXES.into_iter().zip(found) {
                rates.entry((mix, column)).or_default().push(rate);
            }
        }
    }
    for (mix, _) in MIXES {
        for column in COLUMNS {
            rows.push(row(
                format!("rivals.{mix}.{column}"),
                format!("{mix}, {CLIENTS} clients, {column}, in turns with the others"),
                &rates[&(mix, column)],
                "/s",
            ));
        }
    }
    Ok(())
}

fn ours(group: &Group, slice: Duration, seed: u64) -> Result<[f64; 3]> {
    let mut clients = group.connect(Shape::of_paper(CLIENTS, 0), seed)?;
    let mut rates = [0.0; 3];
    for ((_, percent), rate) in MIXES.into_iter().zip(&mut rates) {
        *rate = of_mix(&mut clients, percent, slice, "a server")?.rate();
    }
    Ok(rates)
}

/// One of yrmcds, which replicates to a second one without waiting for it: alone, since that says nothing about a write.
fn yrmcds_at(program: &Path, place: &Path) -> Result<Group> {
    let (at, peer) = (free_address()?, free_address()?);
    std::fs::create_dir_all(place)?;
    let file = place.join("conf");
    let lines = format!(
        "user = root\ngroup = root\nvirtual_ip = 127.0.0.1\nport = {}\nrepl_port = {}\ntemp_dir = {:?}\nlog.threshold = error\n\
         log.file = {:?}\nmemory_limit = 1024M\nmax_data_size = 10M\nworkers = 2\n",
        at.port(),
        peer.port(),
        place,
        place.join("log"),
    );
    std::fs::write(&file, lines)?;
    let mut command = Command::new(program);
    command.arg("-f").arg(&file);
    Group::of_one(command, at, "apt-get install yrmcds, or --yrmcds PROGRAM")
}

/// A directory that goes with the servers that have it.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const NAME: &str = "steadfast-bench-rival-";

/// Three members on this machine.
struct Etcd {
    members: Vec<Child>,
    clients: Vec<SocketAddr>,
    place: Place,
}

impl Etcd {
    fn start(program: &Path) -> Result<Self> {
        let place = Place(Path::new("/dev/shm").join(format!("{NAME}{}", std::process::id())));
        let addresses = |_| Ok((free_address()?, free_address()?));
        let members: Vec<_> = (0..3).map(addresses).collect::<Result<_>>()?;
        let cluster: Vec<String> = members
            .iter()
            .enumerate()
            .map(|(number, (_, peer))| format!("m{number}=http://{peer}"))
            .collect();
        let mut etcd = Self {
            members: Vec::new(),
            clients: members.iter().map(|(client, _)| *client).collect(),
            place,
        };
        for (number, (client, peer)) in members.iter().enumerate() {
            let mut command = Command::new(program);
            command
                .args(["--name", &format!("m{number}")])
                .arg("--data-dir")
                .arg(etcd.place.0.join(number.to_string()))
                .args(["--listen-client-urls", &format!("http://{client}")])
                .args(["--advertise-client-urls", &format!("http://{client}")])
                .args(["--listen-peer-urls", &format!("http://{peer}")])
                .args(["--initial-advertise-peer-urls", &format!("http://{peer}")])
                .args(["--initial-cluster", &cluster.join(",")])
                .args(["--logger", "zap", "--log-level", "error"])
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            dies_with_us(&mut command);
            etcd.members.push(command.spawn().with_context(|| {
                format!(
                    "{} cannot be started\n  fix:   apt-get install etcd-server, or --etcd PROGRAM",
                    program.display()
                )
            })?);
        }
        let until = Instant::now() + READY;
        for at in etcd.clients.clone() {
            while Asker::to(at)
                .and_then(|mut asker| asker.put("ready", "yes"))
                .is_err()
            {
                ensure!(Instant::now() < until, "etcd does not answer at {at}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
        Ok(etcd)
    }

    /// Requests a second, mix by mix.
    fn rates(&self, slice: Duration, seed: u64) -> Result<[f64; 3]> {
        let mut rates = [0.0; 3];
        for ((_, percent), rate) in MIXES.into_iter().zip(&mut rates) {
            let began = Instant::now();
            let lanes: Vec<Result<u64>> = std::thread::scope(|scope| {
                let lanes: Vec<_> = (0..CLIENTS)
                    .map(|number| {
                        let at = self.clients[number % self.clients.len()];
                        scope.spawn(move || lane(at, number, percent, seed, began, slice))
                    })
                    .collect();
                lanes
                    .into_iter()
                    .map(|lane| {
                        lane.join()
                            .unwrap_or_else(|_| Err(anyhow::anyhow!("a client panicked")))
                    })
                    .collect()
            });
            let requests = lanes.into_iter().sum::<Result<u64>>()?;
            *rate = requests as f64 / slice.as_secs_f64();
        }
        Ok(rates)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            let _ = member.kill();
            let _ = member.wait();
        }
    }
}

/// One client that fills its keys, and then asks until its time is over: what was answered between the warming and that.
fn lane(
    at: SocketAddr,
    number: usize,
    get_percent: usize,
    seed: u64,
    began: Instant,
    slice: Duration,
) -> Result<u64> {
    let mut asker = Asker::to(at)?;
    let mut rng = Rng::new(seed ^ number as u64);
    let key = |key: usize| format!("{:x<KEY_BYTES$}", format!("c{number}-k{key}-"));
    let value = |version: u64| format!("{:y<VALUE_BYTES$}", format!("{number} {version} "));
    let mut versions = [0; KEYS];
    for (index, version) in versions.iter().enumerate() {
        asker.put(&key(index), &value(*version))?;
    }
    // All have filled theirs by then, or nearly all.
    let from = began + FILL;
    let mut answered = 0;
    while began.elapsed() < FILL + slice {
        let index = rng.below(KEYS);
        if rng.chance(get_percent) {
            asker.get(&key(index), &value(versions[index]))?;
        } else {
            versions[index] += 1;
            asker.put(&key(index), &value(versions[index]))?;
        }
        answered += u64::from(Instant::now() >= from);
    }
    Ok(answered)
}

/// For 600 puts, and a little load behind them.
const FILL: Duration = Duration::from_millis(1500);

/// A connection to etcd's gateway.
struct Asker(BufReader<TcpStream>);

impl Asker {
    fn to(at: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(at)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READY))?;
        Ok(Self(BufReader::new(stream)))
    }

    fn put(&mut self, key: &str, value: &str) -> Result<()> {
        let body = format!(r#"{{"key":"{}","value":"{}"}}"#, base64(key), base64(value));
        self.ask("put", &body).map(drop)
    }

    fn get(&mut self, key: &str, right: &str) -> Result<()> {
        let said = self.ask("range", &format!(r#"{{"key":"{}"}}"#, base64(key)))?;
        ensure!(
            said.contains(&format!(r#""value":"{}""#, base64(right))),
            "etcd answered wrongly: {said}"
        );
        Ok(())
    }

    fn ask(&mut self, what: &str, body: &str) -> Result<String> {
        let request = format!(
            "POST /v3/kv/{what} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.0.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        let mut status = String::new();
        let mut length = None;
        loop {
            line.clear();
            ensure!(
                self.0.read_line(&mut line)? > 0,
                "etcd closed the connection"
            );
            if status.is_empty() {
                status.clone_from(&line);
            }
            let head = line.trim_end().to_ascii_lowercase();
            if let Some(count) = head.strip_prefix("content-length:") {
                length = Some(count.trim().parse::<usize>()?);
            }
            if head.is_empty() {
                break;
            }
        }
        let mut said = vec![0; length.context("etcd tells no length of its reply")?];
        self.0.read_exact(&mut said)?;
        ensure!(status.contains(" 200 "), "etcd said {status:?}");
        Ok(String::from_utf8(said)?)
    }
}

fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in text.as_bytes().chunks(3) {
        let word = three
            .iter()
            .chain(&[0, 0])
            .take(3)
            .fold(0_usize, |word, byte| word << 8 | usize::from(*byte));
        for place in 0..4 {
            out.push(if place <= three.len() {
                char::from(LETTERS[word >> (18 - 6 * place) & 63])
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn text_is_written_as_etcd_reads_it() {
        // RFC 4648, section 10.
        for (text, coded) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!(base64(text), coded);
        }
    }
}
