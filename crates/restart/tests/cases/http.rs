//! The HTTP server over the key-value store and the file system: three components that fail, one client that does not notice.

use steadfast_restart::{Component, Edge, Host, Policy, Process, Value};

use crate::fixture;

const SERVE: &str = "steadfast:http/server@0.1.0#serve";

struct Server {
    /// The test's own edges.
    http: Edge,
    keyvalue: Edge,
    fs: Edge,
}

fn server(policy: Policy) -> Server {
    server_in(policy, None)
}

/// The same, with processes of their own where one is given.
fn server_in(policy: Policy, process: Option<&Process>) -> Server {
    let mut host = Host::new(true).expect("the pad works");
    for name in ["keyvalue", "fs"] {
        let component = Component {
            process: process.cloned(),
            ..fixture::component(name, policy)
        };
        host.add(component, None).expect("it starts");
    }
    let uses = ["keyvalue", "fs"].map(|to| host.edge("http", to, &[]).expect("an edge"));
    let http = Component {
        uses: uses.into(),
        process: process.cloned(),
        ..fixture::component("http", policy)
    };
    host.add(http, None).expect("it starts");
    let edge = |to: &str| host.edge("test", to, &[]).expect("an edge");
    Server {
        http: edge("http"),
        keyvalue: edge("keyvalue"),
        fs: edge("fs"),
    }
}

impl Server {
    /// Bytes that were used, the output, and whether the connection ends.
    fn serve(&self, input: &[u8]) -> (u32, String, bool) {
        let answer = self.http.invoke(SERVE, &[input.into()]).expect("an answer");
        let Some(Value::Record(fields)) = answer else {
            panic!("a record is needed, found {answer:?}");
        };
        match &fields[..] {
            [(_, Value::U32(used)), (_, output), (_, Value::Bool(close))] => {
                let output = match output {
                    Value::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
                    _ => String::new(),
                };
                (*used, output, *close)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Status and body of one whole request.
    fn ask(&self, method: &str, target: &str, body: &str) -> (u16, String) {
        let length = body.len();
        let input = format!("{method} {target} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}");
        let (used, output, close) = self.serve(input.as_bytes());
        assert_eq!((used as usize, close), (input.len(), false), "{output}");
        let (head, body) = output.split_once("\r\n\r\n").expect("a head");
        let length = head.split_once("Content-Length: ").expect("a length").1;
        assert_eq!(length.parse(), Ok(body.len()), "{output}");
        let status = head.split(' ').nth(1).and_then(|n| n.parse().ok());
        (status.expect("a status"), body.into())
    }

    fn resets(&self) -> u64 {
        let edges = [&self.http, &self.keyvalue, &self.fs];
        let all = edges.map(|edge| edge.stats().expect("stats").resets_total());
        all.iter().sum()
    }
}

#[test]
fn values_counts_and_files_outlive_a_crash_of_any_component_at_every_boundary() {
    let own = fixture::own_process();
    let here = fixture::lazy_policies().map(|policy| (policy, None));
    for (policy, process) in here
        .into_iter()
        .chain([(fixture::lazy_policies()[0], Some(&own))])
    {
        for (which, crash) in (0..3).flat_map(|which| (0..8).map(move |crash| (which, crash))) {
            let server = server_in(policy, process);
            let edges = [&server.http, &server.keyvalue, &server.fs];
            let mut at = 0;
            let mut ask = |method: &str, target: &str, body: &str| {
                if at == crash {
                    edges[which].reset().expect("it comes back");
                }
                at += 1;
                server.ask(method, target, body)
            };
            let text = |status: u16, body: &str| (status, body.to_owned());
            assert_eq!(ask("PUT", "/kv/a", "one"), text(204, ""));
            assert_eq!(ask("PUT", "/files/f", "in a file"), text(204, ""));
            assert_eq!(ask("POST", "/count/n", ""), text(200, "1"));
            assert_eq!(ask("GET", "/kv/a", ""), text(200, "one"));
            assert_eq!(ask("GET", "/files/f", ""), text(200, "in a file"));
            assert_eq!(ask("POST", "/count/n", ""), text(200, "2"));
            assert_eq!(ask("DELETE", "/kv/a", ""), text(204, ""));
            assert_eq!(ask("GET", "/kv/a", ""), text(404, ""), "{which} {crash}");
            for other in [&server.keyvalue, &server.fs] {
                assert_eq!(other.stats().expect("stats").objects, 0, "left open");
            }
        }
    }
}

/// A flip somewhere in the memory of one body of the server, before each request: found, and the request counts once.
#[test]
fn a_request_that_a_flip_interrupts_counts_once() {
    let server = server(fixture::lazy_policies()[2]);
    server.ask("POST", "/count/n", "");
    let size = server.http.memories().expect("a copy")[0].len();
    let mut state: u64 = 11;
    for count in 2..=200 {
        // Marsaglia's xorshift.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let address = usize::try_from(state >> 8).expect("64 bits") % size;
        let body = usize::from(state >> 3 & 1 == 1);
        let bit = u8::try_from(state & 7).expect("small");
        assert_eq!(server.http.flip(body, address, bit), Ok(true));
        let counted = server.ask("POST", "/count/n", "");
        assert_eq!(counted, (200, count.to_string()));
    }
    // A call may write over the flipped bit, or compute the same with it and be compared.
    assert!(server.resets() > 150, "{} resets", server.resets());
}

#[test]
fn requests_come_in_pieces_and_several_at_once() {
    let server = server(fixture::lazy_policies()[0]);
    let put = b"PUT /kv/a HTTP/1.1\r\nContent-Length: 3\r\n\r\none";
    for cut in 0..put.len() {
        assert_eq!(
            server.serve(&put[..cut]),
            (0, String::new(), false),
            "{cut}"
        );
    }
    let two = [&put[..], b"GET /kv/a HTTP/1.1\r\nConnection: close\r\n\r\n"].concat();
    let (used, output, close) = server.serve(&two);
    assert_eq!((used as usize, close), (put.len(), false), "{output}");
    let (_, output, close) = server.serve(&two[put.len()..]);
    assert!(close && output.contains("Connection: close"), "{output}");
    assert!(output.ends_with("\r\n\r\none"), "{output}");
    let expects = b"PUT /kv/a HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n";
    let goes_on = "HTTP/1.1 100 Continue\r\n\r\n".to_owned();
    assert_eq!(server.serve(expects), (0, goes_on, false));
}

/// What a client sends is no reason for a reset, and leaves no memory behind.
#[test]
fn bad_requests_are_answered_and_stop_nothing() {
    let server = server(fixture::lazy_policies()[0]);
    let long = [b"GET /".as_slice(), &[b'a'; 9000]].concat();
    for (input, status) in [
        (&b"nonsense\r\n\r\n"[..], "400"),
        (b"GET /kv/\xff\xfe HTTP/1.1\r\n\r\n", "400"),
        (b"GET /kv/a HTTP/2\r\n\r\n", "400"),
        (b"PUT /kv/a HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"),
        (
            b"PUT /kv/a HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "413",
        ),
        (
            b"PUT /kv/a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            "501",
        ),
        (&long, "431"),
    ] {
        let (_, output, close) = server.serve(input);
        assert!(
            output.starts_with(&format!("HTTP/1.1 {status} ")),
            "{output}"
        );
        assert!(close, "{output}");
    }
    assert_eq!(server.ask("GET", "/", "").0, 404);
    assert_eq!(server.ask("GET", "/kv/", "").0, 404);
    assert_eq!(server.ask("GET", "/files/none", "").0, 404);
    assert_eq!(server.ask("PATCH", "/kv/a", "").0, 405);
    assert_eq!(server.ask("PUT", "/kv/text", "no number").0, 204);
    let size = || server.http.memories().expect("a copy")[0].len();
    let before = size();
    for _ in 0..10_000 {
        assert_eq!(server.ask("POST", "/count/text", "").0, 409);
    }
    assert_eq!(size(), before);
    assert_eq!(server.resets(), 0);
}
