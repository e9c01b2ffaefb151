//! `--http`: metrics in Prometheus' text format, and two questions about health. Reads alone; nothing can be changed here.
//!
//! | Path | 200 | 503 |
//! |---|---|---|
//! | `/healthz` | the task that executes answers | it does not, within two seconds |
//! | `/readyz` | this replica may be given requests | it is joining, draining, repairing, behind, or without a leader |
//! | `/metrics` | the task that executes answers | it does not |
//!
//! Invariant: a monitor that is slow, or asks for ever, holds up nothing but its own connection.
//!
//! Not covered: TLS, connections that stay open, a limit on their number.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::service::Event;

/// A request's head; what is longer is no question of a monitor.
const HEAD_MAX: usize = 8192;
/// For a whole exchange.
const PATIENCE: Duration = Duration::from_secs(5);
/// For the answer of the task that executes.
const ANSWER: Duration = Duration::from_secs(2);

/// Answers for ever.
pub(crate) async fn serve(listener: TcpListener, events: mpsc::UnboundedSender<Event>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let events = events.clone();
        tokio::spawn(async move {
            let _ = timeout(PATIENCE, answer(stream, &events)).await;
        });
    }
}

async fn answer(mut stream: TcpStream, events: &mpsc::UnboundedSender<Event>) -> io::Result<()> {
    let mut head = Vec::new();
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > HEAD_MAX || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head);
    let mut words = line.split_ascii_whitespace();
    let (method, path) = (words.next(), words.next().unwrap_or_default());
    let (code, body) = if method == Some("GET") {
        reply(
            path.split('?').next().unwrap_or_default(),
            status(events).await,
        )
    } else {
        ("405 Method Not Allowed", "only GET\n".to_owned())
    };
    let text = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await
}

async fn status(events: &mpsc::UnboundedSender<Event>) -> Option<Value> {
    let (reply, answer) = oneshot::channel();
    let asked = Event::Own("status".to_owned(), String::new(), reply);
    events.send(asked).ok()?;
    let text = timeout(ANSWER, answer).await.ok()?.ok()?;
    serde_json::from_str(&text).ok()
}

fn reply(path: &str, status: Option<Value>) -> (&'static str, String) {
    const BUSY: &str = "503 Service Unavailable";
    let Some(status) = status else {
        return (BUSY, "the replica does not answer\n".to_owned());
    };
    match path {
        "/healthz" => ("200 OK", "ok\n".to_owned()),
        "/readyz" => match status["unready"].as_str() {
            None => ("200 OK", "ready\n".to_owned()),
            Some(why) => (BUSY, format!("{why}\n")),
        },
        "/metrics" => ("200 OK", metrics(&status)),
        _ => (
            "404 Not Found",
            "known: /metrics, /healthz, /readyz\n".to_owned(),
        ),
    }
}

/// Counters of the service and what they mean: (name in `status`, help).
const COUNTERS: [(&str, &str); 15] = [
    ("entries", "entries of the log that were executed"),
    ("requests", "requests that were executed"),
    ("mismatches", "entries at which replicas differed"),
    ("repairs", "own objects that were wrong and are right now"),
    (
        "passive",
        "repairs of objects that changed while nobody used them",
    ),
    ("single_bit", "repairs in which one bit was wrong"),
    (
        "reruns",
        "entries that were run again, since no vote said what they came to",
    ),
    (
        "refused",
        "groups of requests that were answered with an error, since no reply could be trusted",
    ),
    ("duplicates", "submissions that came out of the log again"),
    ("poison", "entries that did not fit their CRC"),
    ("local", "objects found changed at a stage without a vote"),
    ("check_bytes", "bytes of digests sent to each other replica"),
    ("scrubbed", "objects that the scrubber has compared"),
    (
        "scrub_found",
        "objects that the scrubber found different in some replica",
    ),
    (
        "disk_faults",
        "files of --data that did not fit their check when this process began",
    ),
];

fn metrics(status: &Value) -> String {
    let mut out = String::new();
    let mut put = |kind: &str, name: &str, help: &str, value: String| {
        let _ = write!(
            out,
            "# HELP steadfast_kv_{name} {help}\n# TYPE steadfast_kv_{name} {kind}\nsteadfast_kv_{name} {value}\n"
        );
    };
    for (name, help) in COUNTERS {
        if let Some(count) = status["counts"][name].as_u64() {
            put("counter", &format!("{name}_total"), help, count.to_string());
        }
    }
    for (name, help) in [
        (
            "reads_local",
            "reads answered without the log, against the digest that was voted on",
        ),
        (
            "reads_plain",
            "reads answered without the log and unchecked",
        ),
        (
            "reads_logged",
            "reads that were to be local and took the log",
        ),
    ] {
        if let Some(count) = status[name].as_u64() {
            put("counter", &format!("{name}_total"), help, count.to_string());
        }
    }
    let number = |value: &Value| match value {
        Value::Bool(yes) => u8::from(*yes).to_string(),
        Value::Null => "-1".to_owned(),
        other => other.to_string(),
    };
    for (name, help) in [
        ("ready", "whether this replica may be given requests"),
        ("repairing", "whether a recovery is under way"),
        ("leader", "the replica that leads; -1 for none"),
        ("executed", "the last entry that was executed"),
        ("behind", "entries that have come and were not executed yet"),
        ("open", "entries that not all replicas have agreed on yet"),
        ("items", "items stored"),
        ("bytes", "bytes of all items"),
        ("uptime_s", "seconds since the process began"),
    ] {
        put("gauge", name, help, number(&status[name]));
    }
    let _ = write!(
        out,
        "# HELP steadfast_kv_member_up whether a replica answers this one\n# TYPE steadfast_kv_member_up gauge\n"
    );
    for member in status["members"].as_array().into_iter().flatten() {
        let _ = writeln!(
            out,
            "steadfast_kv_member_up{{replica=\"{}\"}} {}",
            member["replica"],
            number(&member["alive"])
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_and_readiness_are_two_questions() {
        let ready = serde_json::json!({"unready": null});
        let joining = serde_json::json!({"unready": "joining"});
        let code = |path, status: Option<&Value>| &reply(path, status.cloned()).0[..3];
        assert_eq!(code("/healthz", Some(&ready)), "200");
        assert_eq!(code("/healthz", Some(&joining)), "200");
        assert_eq!(code("/healthz", None), "503");
        assert_eq!(code("/readyz", Some(&ready)), "200");
        assert_eq!(code("/readyz", Some(&joining)), "503");
        assert_eq!(code("/readyz", None), "503");
        assert_eq!(code("/strike", Some(&ready)), "404");
    }
}
