//! A client of the HTTP server: counters that it knows, and files that it wrote.

use steadfast_restart::{Edge, Value};

use super::counts::{Counts, functions};
use crate::told::Told;

const SERVE: [&str; 1] = ["steadfast:http/server@0.1.0#serve"];

struct Page {
    count: u64,
    /// What its file holds, once it was written.
    text: Option<String>,
    /// Whether every request so far was answered.
    first: bool,
}

/// Counts, writes and reads.
pub(crate) struct Requests<'a> {
    edge: &'a Edge,
    serve: usize,
    pages: Vec<Page>,
    turn: u64,
    pub(super) counts: Counts,
}

/// Whether an answer has this status, this body, and used the whole request.
fn is(answer: Option<Value>, used: usize, status: &str, body: &str) -> bool {
    let Some(Value::Record(fields)) = answer else {
        return false;
    };
    let length = body.len();
    let right = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n{body}");
    let mut fields = fields.into_iter().map(|(_, value)| value);
    fields.next() == u32::try_from(used).ok().map(Value::U32)
        && fields.next() == Some(Value::Bytes(right.into_bytes()))
        && fields.next() == Some(Value::Bool(false))
}

impl<'a> Requests<'a> {
    pub(super) fn new(edge: &'a Edge, handles: usize) -> Result<Self, Told> {
        let [serve] = functions(edge, SERVE)?;
        let page = || Page {
            count: 0,
            text: None,
            first: true,
        };
        Ok(Self {
            edge,
            serve,
            pages: std::iter::repeat_with(page).take(handles).collect(),
            turn: 0,
            counts: Counts::default(),
        })
    }

    /// Whether a request is answered as it must be; none where it is not answered.
    fn asked(&self, request: &str, body: &str, status: &str, right: &str) -> Option<bool> {
        let length = body.len();
        let text = format!("{request} HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
        let answer = self.edge.call(self.serve, &[text.as_bytes().into()]);
        Some(is(answer.ok()?, text.len(), status, right))
    }

    fn ask(&mut self, place: usize, request: &str, body: &str, status: &str, right: &str) -> bool {
        self.counts.calls += 1;
        let found = self.asked(request, body, status, right);
        self.counts.wrong += u64::from(found == Some(false));
        if found.is_none() {
            self.counts.lost += 1;
            self.begin_anew(place);
        }
        found.is_some()
    }

    /// Whether an unanswered request took effect is not known, so its count begins at zero again.
    fn begin_anew(&mut self, place: usize) {
        self.pages[place] = Page {
            count: 0,
            text: None,
            first: false,
        };
        let request = format!("DELETE /kv/{}", self.name(place));
        let tries = 0..3;
        let mut tries = tries.map(|_| self.asked(&request, "", "204 No Content", ""));
        tries.any(|done| done == Some(true));
    }

    fn name(&self, place: usize) -> String {
        format!("page-{place}")
    }

    /// One count, one file written or read.
    pub(super) fn round(&mut self) {
        self.turn += 1;
        for place in 0..self.pages.len() {
            let name = self.name(place);
            let next = (self.pages[place].count + 1).to_string();
            let request = format!("POST /count/{name}");
            if self.ask(place, &request, "", "200 OK", &next) {
                self.pages[place].count += 1;
            }
            let file = format!("/files/{name}");
            match self.pages[place].text.clone() {
                Some(text) if self.turn.is_multiple_of(2) => {
                    self.ask(place, &format!("GET {file}"), "", "200 OK", &text);
                }
                _ => {
                    let text = format!("text of turn {}", self.turn);
                    let request = format!("PUT {file}");
                    if self.ask(place, &request, &text, "204 No Content", "") {
                        self.pages[place].text = Some(text);
                    }
                }
            }
        }
    }

    /// Counters that were never unanswered and are as they must be.
    pub(super) fn kept(&self) -> usize {
        let right = |(place, page): &(usize, &Page)| {
            let request = format!("GET /kv/{}", self.name(*place));
            let count = page.count.to_string();
            page.first && self.asked(&request, "", "200 OK", &count) == Some(true)
        };
        self.pages.iter().enumerate().filter(right).count()
    }
}
