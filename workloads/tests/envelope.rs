//! Both ends of the message envelope against each other: the C end beneath a server that knows
//! nothing of it, the Rust end as a client. Every frame that passes also compares the two
//! implementations of CRC32C.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use steadfast_envelope::client::{AGREED, Connection, hello};
use steadfast_envelope::dns;
use steadfast_envelope::stream::{PAYLOAD_MAX, Sealer, Sender};
use steadfast_workloads::inputs::Rng;
use steadfast_workloads::servers::build::wrap_option;

const NONCE: u64 = 0xfeed_face_0123_4567;

/// Compiled once for all tests, with the compiler that the repository is built with anyway.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let envelope = here.with_file_name("cc").join("envelope");
        let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("echo");
        let mut compile = Command::new("cc");
        compile.args([
            "-std=gnu11",
            "-O2",
            "-g",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-o",
        ]);
        compile.arg(&out).arg(here.join("programs/echo.c"));
        for part in ["crc32c.c", "stream.c", "dns.c", "wrap.c"] {
            compile.arg(envelope.join(part));
        }
        assert!(compile.arg(wrap_option()).status().unwrap().success());
        out
    })
}

struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(buffer: usize) -> Self {
        let mut child = Command::new(program())
            .arg(buffer.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        Server {
            child,
            port: line.trim().parse().unwrap(),
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
    }

    fn client(&self) -> Connection<TcpStream> {
        let client = Connection::negotiate(self.connect(), NONCE).unwrap();
        assert!(client.enveloped());
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn message(rng: &mut Rng, length: usize) -> Vec<u8> {
    (0..length)
        .map(|_| rng.below(256).to_le_bytes()[0])
        .collect()
}

fn echoed(client: &mut Connection<TcpStream>, length: usize) -> Vec<u8> {
    let mut back = Vec::new();
    while back.len() < length {
        assert!(client.receive(&mut back).unwrap() > 0, "closed early");
    }
    back
}

#[test]
fn messages_of_all_sizes_come_back() {
    // 1536 bytes are three lanes of the C end's checksum.
    let sizes = (1..80).chain(1500..1580).chain(3060..3090).chain([
        PAYLOAD_MAX - 1,
        PAYLOAD_MAX,
        PAYLOAD_MAX + 1,
        3 * PAYLOAD_MAX + 7,
    ]);
    let server = Server::start(16 << 10);
    let mut client = server.client();
    let mut rng = Rng::new(1);
    for size in sizes {
        let message = message(&mut rng, size);
        client.send(&message).unwrap();
        assert!(echoed(&mut client, size) == message, "{size} bytes");
    }
}

#[test]
fn frames_that_do_not_fit_the_servers_buffer_never_stall_it() {
    for buffer in [1, 7, 100, 16_383] {
        let server = Server::start(buffer);
        let mut client = server.client();
        let mut rng = Rng::new(2);
        for size in [1, 2, 8, 99, 100, 101, 700, 5_000, PAYLOAD_MAX] {
            let message = message(&mut rng, size);
            client.send(&message).unwrap();
            assert!(
                echoed(&mut client, size) == message,
                "{size} bytes through {buffer}"
            );
        }
    }
}

#[test]
fn pipelined_frames_cut_anywhere_come_back_in_order() {
    let server = Server::start(16 << 10);
    let mut client = server.client();
    let mut rng = Rng::new(3);
    let (mut sealer, mut wire, mut sent) =
        (Sealer::new(NONCE, Sender::Client), Vec::new(), Vec::new());
    for _ in 0..400 {
        let length = 1 + rng.below(4000);
        let message = message(&mut rng, length);
        sealer.seal(&message, &mut wire);
        sent.extend(message);
    }
    let mut writer = client.stream().try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        let mut rest = &wire[..];
        while !rest.is_empty() {
            let (part, later) = rest.split_at(rest.len().min(1 + rng.below(6000)));
            writer.write_all(part).unwrap();
            rest = later;
        }
    });
    assert!(echoed(&mut client, sent.len()) == sent);
    writing.join().unwrap();
}

#[test]
fn a_damaged_frame_closes_the_stream_and_none_of_it_arrives() {
    let server = Server::start(16 << 10);
    let mut frame = Vec::new();
    Sealer::new(NONCE, Sender::Client).seal(b"set a 0 0 1\r\n1\r\n", &mut frame);
    for bit in (0..frame.len() * 8).step_by(5) {
        let mut stream = server.connect();
        stream.write_all(hello(NONCE).as_bytes()).unwrap();
        let mut answer = [0; AGREED.len()];
        stream.read_exact(&mut answer).unwrap();
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        stream.write_all(&damaged).unwrap();
        let mut back = Vec::new();
        match stream.read_to_end(&mut back) {
            Ok(_) => assert!(back.is_empty(), "bit {bit} came back as {back:?}"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "bit {bit}"),
        }
    }
}

#[test]
fn a_client_that_never_asks_sees_plain_bytes() {
    let server = Server::start(16 << 10);
    for text in [
        "get a\r\n",
        "s",
        "steadfast envelope 1 nonsense here!!\r\n\r\n",
        "steadfast",
    ] {
        let mut stream = server.connect();
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut back = String::new();
        // What arrives and the end of the stream may meet in one turn of the server's loop.
        stream.read_to_string(&mut back).unwrap();
        assert!(text.starts_with(&back), "{back:?} for {text:?}");
    }
    let mut stream = server.connect();
    stream.write_all(b"get a\r\n").unwrap();
    let mut back = [0; 7];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"get a\r\n");
}

/// `a. IN A` with an OPT record, which the server drops from its reply if `strip`.
fn query(id: u16, strip: bool) -> Vec<u8> {
    let mut query = [
        &id.to_be_bytes()[..],
        &[1, strip.into(), 0, 1, 0, 0, 0, 0, 0, 1],
    ]
    .concat();
    query.extend_from_slice(&[1, b'a', 0, 0, 1, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0]);
    query
}

fn ask(server: &Server, datagram: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(("127.0.0.1", server.port)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    socket.send(datagram).unwrap();
    let mut reply = [0; 4096];
    let got = socket.recv(&mut reply).ok()?;
    Some(reply[..got].to_vec())
}

#[test]
fn a_datagrams_reply_carries_the_serial_of_its_query() {
    let server = Server::start(16 << 10);
    for strip in [false, true] {
        let sealed = dns::seal(&query(77, strip), 0xabcd_0123, 1232).unwrap();
        let reply = ask(&server, &sealed).unwrap();
        let opened = dns::open(&reply).unwrap().unwrap();
        assert_eq!(opened.serial, 0xabcd_0123);
        assert_eq!(opened.message[..2], 77_u16.to_be_bytes());
        assert_eq!(opened.message[2] & 0x80, 0x80);
    }
    // And without the envelope, bytes as they are.
    let plain = query(78, false);
    let reply = ask(&server, &plain).unwrap();
    assert_eq!(reply[3..], plain[3..]);
}

#[test]
fn a_damaged_datagram_gets_no_reply() {
    let server = Server::start(16 << 10);
    let mut sealed = dns::seal(&query(79, false), 5, 1232).unwrap();
    sealed[13] ^= 0x20;
    assert_eq!(ask(&server, &sealed), None);
}
