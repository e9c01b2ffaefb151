//! `[[listen]]`: stock HTTP clients talk to a component, in pieces, one after the other, and more of them than are allowed.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use crate::operations::{Service, free, status, until};
use crate::{Refused, components, err, host};

pub(crate) const SHOP: &str = r#"
[component.keyvalue]

[component.fs]

[component.http]

[[edge]]
from = "http"
to = "keyvalue"

[[edge]]
from = "http"
to = "fs"

[[listen]]
address = "ADDRESS"
component = "http"
function = "steadfast:http/server@0.1.0#serve"
connections_max = 2
"#;

pub(crate) fn connect(address: &str) -> TcpStream {
    let stream = until("a port that listens", || TcpStream::connect(address).ok());
    let limit = Some(Duration::from_secs(30));
    stream.set_read_timeout(limit).expect("a socket");
    stream
}

/// Sends text, and reads an answer whose body has this length.
pub(crate) fn ask(stream: &mut TcpStream, text: &str, body: usize) -> String {
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = Vec::new();
    let whole = |answer: &[u8]| {
        let head = answer.windows(4).position(|end| end == b"\r\n\r\n");
        head.is_some_and(|head| answer.len() >= head + 4 + body)
    };
    let mut piece = [0; 1024];
    while !whole(&answer) {
        let n = stream.read(&mut piece).expect("an answer");
        assert_ne!(n, 0, "{}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..n]);
    }
    String::from_utf8(answer).expect("text")
}

#[test]
fn a_client_is_answered_over_one_connection_and_too_many_clients_are_refused() {
    let address = free();
    let service = Service::start("shop", &SHOP.replace("ADDRESS", &address), &[], &[]);
    let mut first = connect(&address);
    let put = "PUT /kv/a HTTP/1.1\r\nContent-Length: 3\r\n\r\n";
    first.write_all(put.as_bytes()).expect("sent");
    assert!(ask(&mut first, "one", 0).starts_with("HTTP/1.1 204 "));
    let mut second = connect(&address);
    let get = "GET /kv/a HTTP/1.1\r\n\r\n";
    assert!(ask(&mut second, get, 3).ends_with("\r\n\r\none"));
    for count in 1..=9 {
        let post = "POST /count/n HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
        assert!(ask(&mut first, post, 1).ends_with(&format!("\r\n\r\n{count}")));
    }
    let mut third = connect(&address);
    assert!(ask(&mut third, "", 0).starts_with("HTTP/1.1 503 "));
    // Whoever leaves makes room.
    drop(second);
    until("room", || {
        let mut other = TcpStream::connect(&address).ok()?;
        other.write_all(get.as_bytes()).ok()?;
        let mut answer = [0; 12];
        other.read_exact(&mut answer).ok()?;
        (&answer == b"HTTP/1.1 200").then_some(())
    });
    let ended = service.end();
    assert!(ended.status.success(), "{}", err(&ended));
    assert!(err(&ended).contains(&format!("http listens at {address}")));
}

/// Each component has a process of its own unless it says otherwise; each is killed between two requests: counts go on, and the client keeps
/// its connection.
#[test]
fn a_killed_process_of_a_component_costs_a_client_nothing() {
    let (address, socket) = (free(), components().join("killed.sock"));
    let app = SHOP.replace("ADDRESS", &address);
    let more = ["--control", socket.to_str().expect("a path")];
    let service = Service::start("killed", &app, &more, &[]);
    let mut client = connect(&address);
    let post = "POST /count/n HTTP/1.1\r\nContent-Length: 0\r\n\r\n";
    for count in 1..=6 {
        assert!(ask(&mut client, post, 1).ends_with(&format!("\r\n\r\n{count}")));
        let components = status(&socket)["components"].clone();
        // fs, http, keyvalue, and again.
        let pid = components[count % 3]["processes"][0].to_string();
        let killed = Command::new("kill").args(["-KILL", &pid]).status();
        assert!(killed.expect("it runs").success());
    }
    let ended = service.end();
    assert!(ended.status.success(), "{}", err(&ended));
    for name in ["http", "keyvalue"] {
        let told = format!("{name} failed 2 times");
        assert!(err(&ended).contains(&told), "{}", err(&ended));
    }
}

#[test]
fn what_cannot_answer_a_connection_is_refused() {
    let refused = |app: &str| {
        let app = app.replace("ADDRESS", "127.0.0.1:0");
        Refused::by(&host("run", "listen-refused", &app, &[]))
    };
    refused(
        &SHOP
            .replace("component = \"http\"", "component = \"fs\"")
            .replace(
                "steadfast:http/server@0.1.0#serve",
                "steadfast:fs/files@0.1.0#names",
            ),
    )
    .says("cannot answer a connection")
    .fix("list<u8>");
    refused(&SHOP.replace("component = \"http\"", "component = \"web\""))
        .says("web is called and is no component")
        .fix("one of fs, http, keyvalue");
    refused(&SHOP.replace("ADDRESS", "192.0.2.1:80"))
        .says("cannot be listened at")
        .fix("another address");
}
