//! The service of cc/tests/http.cc (C++ on cpp-httplib): requests, and the right replies by a model of it.
//!
//! Four operations on named accounts: put an amount, which may be no number or more than there is,
//! get, delete, list. Each ends well or by an exception; a reply is right to the byte, header
//! included.
//!
//! Not covered: other versions of cpp-httplib than Debian 12's 0.11.4, which may order header fields
//! differently.

use std::collections::{BTreeMap, HashMap};

use super::memcached::Step;
use crate::inputs::Rng;

#[derive(Default)]
struct Ledger {
    /// Balance, and how many amounts made it.
    accounts: HashMap<String, (i64, usize)>,
    by_size: BTreeMap<i64, String>,
    total: i64,
}

/// Status line's end and body.
type Reply = (&'static str, String);

impl Ledger {
    fn put(&mut self, name: &str, body: &str) -> Reply {
        let Ok(amount) = body.parse::<i64>() else {
            return ("400 Bad Request", "refused: stol\n".to_owned());
        };
        let account = self.accounts.entry(name.to_owned()).or_default();
        self.by_size.remove(&account.0);
        if account.0 + amount < 0 {
            // The account stays, and is not listed until it is put something.
            return (
                "400 Bad Request",
                format!("refused: not enough: {}\n", account.0),
            );
        }
        account.0 += amount;
        account.1 += 1;
        self.total += amount;
        self.by_size.insert(account.0, name.to_owned());
        (
            "200 OK",
            format!("{name} has {} after {}\n", account.0, account.1),
        )
    }

    fn get(&self, name: &str) -> Reply {
        match self.accounts.get(name) {
            Some((balance, _)) => ("200 OK", format!("{name} {balance}\n")),
            None => ("404 Not Found", format!("no account {name}\n")),
        }
    }

    fn delete(&mut self, name: &str) -> Reply {
        match self.accounts.remove(name) {
            Some((balance, _)) => {
                self.total -= balance;
                self.by_size.remove(&balance);
                ("200 OK", "gone\n".to_owned())
            }
            None => ("404 Not Found", format!("no account {name}\n")),
        }
    }

    fn list(&self) -> Reply {
        let mut body = String::new();
        for (balance, name) in &self.by_size {
            body += &format!("{balance} {name}\n");
        }
        ("200 OK", body + &format!("total {}\n", self.total))
    }
}

/// So many requests, and what comes back.
#[must_use]
pub fn trace(seed: u64, length: usize) -> Vec<Step> {
    let mut rng = Rng::new(seed);
    let mut ledger = Ledger::default();
    (0..length)
        .map(|_| {
            let name = format!("customer_{}", rng.below(24));
            let path = format!("/account/{name}");
            let (method, path, body, (status, reply)) = match rng.below(16) {
                0..=7 => {
                    let body = (rng.below(900) as i64 - 300).to_string();
                    let reply = ledger.put(&name, &body);
                    ("PUT", path, body, reply)
                }
                8 => {
                    let body = "much".to_owned();
                    let reply = ledger.put(&name, &body);
                    ("PUT", path, body, reply)
                }
                9..=12 => ("GET", path, String::new(), ledger.get(&name)),
                13 => ("DELETE", path, String::new(), ledger.delete(&name)),
                _ => ("GET", "/list".to_owned(), String::new(), ledger.list()),
            };
            let length = body.len();
            Step {
                request: format!(
                    "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}"
                )
                .into_bytes(),
                reply: format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\nContent-Type: text/plain\r\n\
                     Keep-Alive: timeout=5, max=100000\r\n\r\n{reply}",
                    reply.len()
                )
                .into_bytes(),
            }
        })
        .collect()
}
