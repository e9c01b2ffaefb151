//! What monitors ask a service over HTTP: health, and metrics in Prometheus' text format. Reads alone; nothing can be changed here.
//!
//! Invariant: a question that is not whole within twice [`PATIENCE`] gets no answer, and nobody who stands still is waited for longer.
//!
//! Not covered: TLS; connections that stay open; several exchanges at a time.
//! See prometheus.io, "Exposition formats".

use std::fmt::{Display, Write as _};
use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// For one read or write, and for the reads of one question.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// What is longer is no question of a monitor.
const HEAD_MAX: usize = 8192;

/// Status line and body.
pub type Reply = (&'static str, String);

/// It is as asked for.
pub const OK: &str = "200 OK";
/// It is not, for now.
pub const BUSY: &str = "503 Service Unavailable";
/// No such page.
pub const UNKNOWN: &str = "404 Not Found";

/// Answers for ever; `reply` gets the path.
pub fn serve(listener: &TcpListener, reply: impl Fn(&str) -> Reply) {
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Out of descriptors, for instance: not to be asked again at once.
            std::thread::sleep(Duration::from_millis(20));
            continue;
        };
        let limited = stream
            .set_read_timeout(Some(PATIENCE))
            .and_then(|()| stream.set_write_timeout(Some(PATIENCE)));
        if limited.is_ok() {
            let _ = answer(stream, &reply);
        }
    }
}

/// One exchange.
///
/// # Errors
/// When the other side goes away.
pub fn answer(mut stream: impl Read + Write, reply: impl Fn(&str) -> Reply) -> io::Result<()> {
    let began = Instant::now();
    let (mut head, mut piece) = (Vec::new(), [0; 1024]);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        let n = stream.read(&mut piece)?;
        head.extend_from_slice(&piece[..n]);
        if n == 0 || head.len() > HEAD_MAX || began.elapsed() > PATIENCE {
            return Ok(());
        }
    }
    let line = String::from_utf8_lossy(&head);
    let mut words = line.split_ascii_whitespace();
    let (code, body) = if words.next() == Some("GET") {
        let path = words.next().unwrap_or_default();
        reply(path.split('?').next().unwrap_or_default())
    } else {
        ("405 Method Not Allowed", "only GET\n".to_owned())
    };
    let text = format!(
        "HTTP/1.1 {code}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(text.as_bytes())
}

/// What a number means over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It only grows.
    Counter,
    Gauge,
}

/// A page of metrics.
#[derive(Debug, Default)]
pub struct Metrics {
    text: String,
    name: String,
}

impl Metrics {
    /// Begins a family of samples.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
        };
        name.clone_into(&mut self.name);
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// A sample of the family begun last.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", quoted(value)))
            .collect();
        let labels = match &labels[..] {
            [] => String::new(),
            some => format!("{{{}}}", some.join(",")),
        };
        let _ = writeln!(self.text, "{}{labels} {value}", self.name);
    }

    /// The page.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Both<'a>(&'a [u8], Vec<u8>);

    impl Read for Both<'_> {
        fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
            self.0.read(to)
        }
    }

    impl Write for Both<'_> {
        fn write(&mut self, from: &[u8]) -> io::Result<usize> {
            self.1.write(from)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn said(asked: &str) -> String {
        let mut both = Both(asked.as_bytes(), Vec::new());
        answer(&mut both, |path| (OK, format!("[{path}]"))).expect("in memory");
        String::from_utf8(both.1).expect("text")
    }

    #[test]
    fn a_whole_question_is_answered_and_nothing_else() {
        let good = said("GET /metrics?x=1 HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(good.starts_with("HTTP/1.1 200 OK\r\n"), "{good}");
        assert!(good.ends_with("Content-Length: 10\r\nConnection: close\r\n\r\n[/metrics]"));
        assert!(said("POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
        assert_eq!(said("GET / HTTP/1.1\r\n"), "", "half a question");
        assert_eq!(said(&"x".repeat(3 * HEAD_MAX)), "");
    }

    #[test]
    fn a_page_has_families_with_samples() {
        let mut page = Metrics::default();
        page.family(Kind::Counter, "a_total", "so many");
        page.sample(&[("of", "x\"y"), ("by", "z")], 3);
        page.family(Kind::Gauge, "b", "now");
        page.sample(&[], 0.5);
        assert_eq!(
            page.into_text(),
            "# HELP a_total so many\n# TYPE a_total counter\na_total{of=\"x\\\"y\",by=\"z\"} 3\n\
             # HELP b now\n# TYPE b gauge\nb 0.5\n"
        );
    }
}
