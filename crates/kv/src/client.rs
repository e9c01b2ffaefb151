//! One client connection: what it has sent is read command by command, executed as one group, and answered in its order.
//!
//! Not covered: a request while the one before it is under way waits in the socket.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use steadfast_crosscheck::Digest;
use steadfast_envelope::server::{Asked, Envelope, asked};
use steadfast_group::tls::{Stream, Tls};

use crate::alive::for_client;
use crate::protocol::{Local, Parsed, TOO_LARGE, parse};
use crate::request::Request;
use crate::service::{Event, Group, Reply, Service};

/// Connections beyond the limit, for commands of the group alone: a fresh process has to be let in.
const SPARE: usize = 8;
/// How long such a one may say nothing.
const FIRST: Duration = Duration::from_secs(1);
const TOO_MANY: &[u8] = b"SERVER_ERROR too many connections\r\n";
/// Requests of one connection in one group.
const GROUP_MAX: usize = 128;

/// One more, for as long as it is there: of connections, and of those whose requests are under way.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes connections for ever. `busy` counts those that wait for replies, or are being written to.
pub(crate) async fn serve(
    listener: TcpListener,
    events: mpsc::UnboundedSender<Event>,
    most: usize,
    tls: Option<(Tls, bool)>,
    busy: Arc<AtomicUsize>,
) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: some will come back.
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let others = open.load(Ordering::Relaxed);
        if others >= most + SPARE {
            let _ = stream.try_write(TOO_MANY);
            let _ = stream.shutdown().await;
            continue;
        }
        let (events, tls, busy) = (events.clone(), tls.clone(), busy.clone());
        let counted = Counted::new(&open);
        tokio::spawn(for_client(async move {
            let _counted = counted;
            let _ = stream.set_nodelay(true);
            let stream = match tls {
                Some((tls, known)) => tls.accept_client(stream, known).await,
                None => Ok(Stream::Plain(stream)),
            };
            let Ok(mut stream) = stream else { return };
            let mut input = Vec::with_capacity(1 << 14);
            if others >= most {
                let first = timeout(FIRST, stream.read_buf(&mut input)).await;
                if first.is_err() || !input.starts_with(b"sf ") {
                    let _ = stream.write_all(TOO_MANY).await;
                    let _ = stream.shutdown().await;
                    return;
                }
            }
            let _ = talk(stream, input, events, &busy).await;
        }));
    }
}

/// What is answered, in order.
enum Slot {
    Bytes(Vec<u8>),
    Reply,
}

async fn talk(
    mut stream: Stream,
    mut input: Vec<u8>,
    events: mpsc::UnboundedSender<Event>,
    busy: &Arc<AtomicUsize>,
) -> io::Result<()> {
    let mut output = Vec::with_capacity(1 << 14);
    // The first bytes say whether the client asks for the envelope.
    let mut envelope = loop {
        match asked(&input) {
            Asked::Plain => break None,
            Asked::Partial => {}
            Asked::Envelope(nonce) => {
                stream.write_all(Envelope::AGREED).await?;
                stream.flush().await?;
                input.clear();
                break Some(Envelope::new(nonce));
            }
        }
        if stream.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    };
    let mut sealed = Vec::new();
    // Of a value above the limit: bytes that are to come and that nobody keeps.
    let mut skip = 0;
    loop {
        let mut consumed = skip.min(input.len());
        skip -= consumed;
        let mut requests: Vec<Request> = Vec::new();
        let mut slots: Vec<Slot> = Vec::new();
        let mut close = false;
        let mut own = None;
        while consumed < input.len() && requests.len() < GROUP_MAX && !close && own.is_none() {
            match twice(&input[consumed..])? {
                Parsed::Partial => break,
                Parsed::Request(bytes, request) => {
                    consumed += bytes;
                    requests.push(request);
                    slots.push(Slot::Reply);
                }
                Parsed::Answer(bytes, text) => {
                    consumed = (consumed + bytes).min(input.len());
                    slots.push(Slot::Bytes(text));
                }
                Parsed::TooLarge(line, value, stale) => {
                    consumed += line;
                    let here = value.min(input.len() - consumed);
                    consumed += here;
                    skip = value - here;
                    match stale {
                        Some(request) => {
                            requests.push(request);
                            slots.push(Slot::Reply);
                        }
                        None => slots.push(Slot::Bytes(TOO_LARGE.to_vec())),
                    }
                }
                Parsed::Local(bytes, Local::Quit) => {
                    consumed += bytes;
                    close = true;
                }
                Parsed::Local(bytes, local) => {
                    consumed += bytes;
                    own = Some(local);
                }
                Parsed::Close(text) => {
                    slots.push(Slot::Bytes(text));
                    close = true;
                }
            }
        }
        input.drain(..consumed);
        output.clear();
        let mut replies = Ok(Vec::new());
        let silent = requests.iter().any(Request::is_silent);
        let under_way = (!requests.is_empty()).then(|| Counted::new(busy));
        if !requests.is_empty() {
            let (reply, answer) = oneshot::channel();
            let gone = events
                .send(Event::Group(Group { requests, reply }))
                .is_err();
            replies = if gone {
                Err("the replica is ending")
            } else {
                answer.await.unwrap_or(Err("the replica is ending"))
            };
        }
        match replies {
            Ok(replies) => {
                let mut replies = replies.into_iter();
                for slot in slots {
                    match slot {
                        Slot::Bytes(text) => put(&mut envelope, &text.into(), &mut output)?,
                        Slot::Reply => put(
                            &mut envelope,
                            &replies.next().unwrap_or_default(),
                            &mut output,
                        )?,
                    }
                }
            }
            Err(why) => {
                // Which of several requests went wrong is not known, so the connection ends behind this line.
                let text = format!("SERVER_ERROR {why}\r\n").into_bytes();
                put(&mut envelope, &text.into(), &mut output)?;
                close |= slots.len() > 1 || silent;
            }
        }
        if let Some(local) = own {
            let text = answered(local, &events).await;
            put(&mut envelope, &text.into(), &mut output)?;
        }
        if !output.is_empty() {
            stream.write_all(&output).await?;
            stream.flush().await?;
        }
        drop(under_way);
        if close {
            return stream.shutdown().await;
        }
        if consumed > 0 {
            continue;
        }
        let Some(envelope) = &mut envelope else {
            if stream.read_buf(&mut input).await? == 0 {
                return Ok(());
            }
            continue;
        };
        if stream.read_buf(&mut sealed).await? == 0 {
            return Ok(());
        }
        // A damaged frame ends the connection: none of it is executed.
        envelope
            .open(&mut sealed, &mut input)
            .map_err(io::Error::other)?;
    }
}

/// Reads one command twice: what one replica makes of it is what all of them execute, so nobody could outvote a mistake here.
fn twice(input: &[u8]) -> io::Result<Parsed> {
    let first = parse(input);
    let again = || parse(std::hint::black_box(input));
    if again() == first {
        return Ok(first);
    }
    let (third, fourth) = (again(), again());
    if third == fourth {
        Ok(third)
    } else {
        Err(io::Error::other("a request is read differently each time"))
    }
}

/// Appends a reply to what is written next. The digest that was voted for is compared with the bytes behind it, under the envelope after
/// their checksum was computed: a reply that changed since its vote is not sent, and ends the connection.
fn put(envelope: &mut Option<Envelope>, reply: &Reply, output: &mut Vec<u8>) -> io::Result<()> {
    let right = |bytes: &[u8]| reply.voted.is_none_or(|voted| Digest::of(bytes) == voted);
    let before = output.len();
    let whole = if let Some(envelope) = envelope {
        envelope.seal(&reply.bytes, output, right)
    } else {
        output.extend_from_slice(&reply.bytes);
        right(&output[before..])
    };
    if !whole {
        return Err(io::Error::other("a reply changed after its vote"));
    }
    if let Some(bit) = reply.strike {
        let behind = &mut output[before..];
        let at = bit % (behind.len() * 8);
        behind[at / 8] ^= 1 << (at % 8);
    }
    Ok(())
}

async fn answered(local: Local, events: &mpsc::UnboundedSender<Event>) -> Vec<u8> {
    let ask = async |word: &str, rest: &str| {
        let (reply, answer) = oneshot::channel();
        let _ = events.send(Event::Own(word.to_owned(), rest.to_owned(), reply));
        answer
            .await
            .unwrap_or_else(|_| "ERROR the replica is ending".to_owned())
    };
    match local {
        Local::Own(word, rest) => format!("{}\r\n", ask(&word, &rest).await).into_bytes(),
        Local::Stats(what) => match what.as_str() {
            "" => serde_json::from_str(&ask("status", "").await).map_or_else(
                |_| b"SERVER_ERROR no statistics\r\n".to_vec(),
                |status| Service::stats(&status).into_bytes(),
            ),
            "reset" => b"RESET\r\n".to_vec(),
            // Of one process's allocator, or of nothing here.
            "items" | "slabs" | "sizes" | "settings" | "conns" | "detail" => b"END\r\n".to_vec(),
            _ => b"ERROR\r\n".to_vec(),
        },
        Local::Quit => Vec::new(),
    }
}
