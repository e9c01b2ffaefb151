//! mini-redis 0.4 (tokio-rs/mini-redis, MIT) as replicas that vote. Its connections, frames and commands are those of the crate; what
//! stands here takes the place of its `db.rs` and `server.rs`. The clients' port is the first line on stdout.
//!
//! ```text
//! mini-redis REPLICA PEER,PEER,PEER SECRET-FILE
//! ```
//!
//! Not covered: PUBLISH and SUBSCRIBE, which are between connections of one process.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program")]

use mini_redis::{Command, Connection, Frame, Result};
use serde::{Deserialize, Serialize};
use steadfast_crosscheck::{Arena, Critical, Ref, State};
use steadfast_group::driver::{Calls, Guarded, News, Setup};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::block_in_place;

#[derive(Critical)]
struct Entry {
    data: Vec<u8>,
    expires_ms: Option<u64>,
}

#[derive(State, Default)]
struct Db {
    entries: Arena<Entry>,
}

#[derive(Serialize, Deserialize)]
enum Request {
    Get(String),
    Set(String, Vec<u8>, Option<u64>),
}

impl Db {
    /// Executes a request of the log. Expiry goes by the log's time.
    fn execute(&mut self, now_ms: u64, request: Request) -> Option<Vec<u8>> {
        match request {
            Request::Get(key) => {
                let at = Ref::named(key.as_bytes());
                let entry = self.entries.read(at)?;
                if entry.expires_ms.is_none_or(|when| when > now_ms) {
                    return Some(entry.data.clone());
                }
                self.entries.remove(at);
                None
            }
            Request::Set(key, data, lasts_ms) => {
                let expires_ms = lasts_ms.map(|ms| now_ms.saturating_add(ms));
                let at = Ref::named(key.as_bytes());
                self.entries.put(at, Entry { data, expires_ms });
                None
            }
        }
    }
}

async fn handle(stream: TcpStream, calls: Calls) -> Result<()> {
    let mut connection = Connection::new(stream);
    while let Some(frame) = connection.read_frame().await? {
        let request = match Command::from_frame(frame)? {
            Command::Get(get) => Some(Request::Get(get.key().to_owned())),
            Command::Set(set) => {
                let lasts_ms = set.expire().map(|time| time.as_millis().try_into());
                let data = set.value().to_vec();
                Some(Request::Set(
                    set.key().to_owned(),
                    data,
                    lasts_ms.transpose()?,
                ))
            }
            _ => None,
        };
        let sets = matches!(request, Some(Request::Set(..)));
        let voted = request.ok_or("requirement: GET or SET; found: another command");
        let reply = match voted.and_then(|request| block_in_place(|| calls.ask(&request))) {
            Err(why) => Frame::Error(format!("ERR {why}")),
            Ok(Some(data)) => Frame::Bulk(Vec::into(data)),
            Ok(None) if sets => Frame::Simple("OK".to_owned()),
            Ok(None) => Frame::Null,
        };
        connection.write_frame(&reply).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let words: Vec<String> = std::env::args().collect();
    let [_, slot, peers, secret] = words.as_slice() else {
        anyhow::bail!("mini-redis REPLICA PEER,PEER,PEER SECRET-FILE");
    };
    let clients = TcpListener::bind("127.0.0.1:0").await?;
    let at = clients.local_addr()?;
    let (name, epoch) = ("mini-redis 0.4", Db::epoch());
    let (setup, listener) = Setup::plain(name, epoch, slot.parse()?, peers, at, secret.as_ref())?;
    let told = |news: &News| eprintln!("{}", serde_json::to_string(news).unwrap_or_default());
    let machine = Guarded::new(Db::default(), Db::execute, told);
    let (calls, ends) = Calls::start(setup, listener, machine)?;
    println!("{}", at.port());
    while !ends.is_finished() {
        let (stream, _) = clients.accept().await?;
        let calls = calls.clone();
        tokio::spawn(async move {
            if let Err(why) = handle(stream, calls).await {
                eprintln!("connection: {why}");
            }
        });
    }
    anyhow::bail!("{:?}", ends.join())
}
