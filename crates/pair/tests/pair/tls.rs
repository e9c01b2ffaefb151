//! The link with certificates: the right ones pass, each other kind is a clear error, and nothing is said in the clear.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::sites::*;

/// An authority, and what it has signed.
struct Authority {
    dir: PathBuf,
}

fn openssl(dir: &Path, args: &[&str]) {
    let output = Command::new("openssl")
        .args(args)
        .current_dir(dir)
        .output()
        .expect("openssl is installed");
    assert!(
        output.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        fs::create_dir_all(dir.join("issued")).expect("a directory");
        fs::write(dir.join("index.txt"), "").expect("a file");
        fs::write(
            dir.join("ca.cnf"),
            "[ca]\ndefault_ca=own\n[own]\ndatabase=index.txt\nnew_certs_dir=issued\nrand_serial=yes\ndefault_md=sha256\n\
             policy=any\ncopy_extensions=copy\nunique_subject=no\ncertificate=ca.pem\nprivate_key=ca.key\n[any]\ncommonName=supplied\n",
        )
        .expect("a file");
        let (key, subject) = ("ec_paramgen_curve:P-256", format!("/CN=pair of {name}"));
        openssl(
            &dir,
            &[
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                key,
                "-nodes",
                "-keyout",
                "ca.key",
                "-out",
                "ca.pem",
                "-subj",
                &subject,
                "-days",
                "30",
                "-addext",
                "keyUsage=critical,keyCertSign",
            ],
        );
        Self { dir }
    }

    /// A certificate for a host that is valid until `end` (YYMMDDHHMMSSZ).
    fn issue(&self, site: &str, host: &str, end: &str) {
        let [key, request, cert] = ["key", "csr", "pem"].map(|kind| format!("{site}.{kind}"));
        let alternative = format!("subjectAltName={host}");
        openssl(
            &self.dir,
            &[
                "req",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-nodes",
                "-keyout",
                &key,
                "-out",
                &request,
                "-subj",
                "/CN=site",
                "-addext",
                &alternative,
            ],
        );
        openssl(
            &self.dir,
            &[
                "ca",
                "-batch",
                "-config",
                "ca.cnf",
                "-in",
                &request,
                "-out",
                &cert,
                "-startdate",
                "200101000000Z",
                "-enddate",
                end,
                "-notext",
            ],
        );
    }

    /// The flags of a site that shows the certificate of `site` and believes those of `believed`.
    fn flags(&self, site: &str, believed: &Self) -> Vec<String> {
        let at = |name: String| self.dir.join(name).display().to_string();
        let ca = believed.dir.join("ca.pem").display().to_string();
        let (cert, key) = (at(format!("{site}.pem")), at(format!("{site}.key")));
        ["--tls-cert", &cert, "--tls-key", &key, "--tls-ca", &ca]
            .map(str::to_owned)
            .to_vec()
    }
}

const VALID: &str = "491231000000Z";
const HERE: &str = "IP:127.0.0.1";

fn started(site: &Site, side: &str, flags: &[String]) -> std::process::Child {
    start(
        site,
        side,
        &flags.iter().map(String::as_str).collect::<Vec<_>>(),
    )
}

/// Both sites with flags of their own, until both have ended: status and what they said.
fn ends(site: &Site, a: &[String], b: &[String]) -> (Output, Output) {
    let address = format!("127.0.0.1:{}", free_port());
    let with =
        |first: &str, flags: &[String]| [&[first.to_owned(), address.clone()], flags].concat();
    let b = started(site, "secondary", &with("--listen", b));
    let a = started(site, "primary", &with("--peer", a));
    let wait = |mut child: std::process::Child| {
        drop(child.stdin.take());
        child.wait_with_output().expect("it ends")
    };
    (wait(a), wait(b))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn with_certificates_of_one_authority_the_pair_works() {
    let dir = with_table("tls");
    let keys = seed("tls-keys");
    let (site, own) = (sqlite_site(&dir), Authority::new(&keys, "own"));
    own.issue("a", HERE, VALID);
    own.issue("b", HERE, VALID);
    let address = format!("127.0.0.1:{}", free_port());
    let (mut to_a, mut to_b) = (own.flags("a", &own), own.flags("b", &own));
    to_a.extend(["--peer".into(), address.clone()]);
    to_b.extend(["--listen".into(), address]);
    let b = started(&site, "secondary", &to_b);
    let a = started(&site, "primary", &to_a);
    let mut both = Both::with(a, b);
    assert_eq!(both.ask(CHANGE), "200");
    both.strike(&both.b, PLACE, 1);
    let sum = both.ask(ASK);
    assert_eq!(sum.len(), 56, "{sum}");
    let ends = both.end();
    assert_eq!(ends.codes(), [Some(0); 2], "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
    fs::remove_dir_all(keys).expect("clean");
}

#[test]
fn a_wrong_an_expired_and_a_missing_certificate_are_told_apart() {
    let dir = with_table("tls-wrong");
    let keys = seed("tls-wrong-keys");
    let site = sqlite_site(&dir);
    let (own, other) = (Authority::new(&keys, "own"), Authority::new(&keys, "other"));
    own.issue("here", HERE, VALID);
    own.issue("elsewhere", "IP:10.0.0.9", VALID);
    own.issue("old", HERE, "210101000000Z");
    other.issue("stranger", HERE, VALID);
    let right = own.flags("here", &own);
    let clear: Vec<String> = Vec::new();
    struct Row {
        what: &'static str,
        a: Vec<String>,
        b: Vec<String>,
        why: &'static str,
    }
    let rows: [Row; 7] = [
        Row {
            what: "an expired one connects",
            a: own.flags("old", &own),
            b: right.clone(),
            why: "xpired",
        },
        Row {
            what: "an expired one listens",
            a: right.clone(),
            b: own.flags("old", &own),
            why: "xpired",
        },
        Row {
            what: "a stranger connects",
            a: other.flags("stranger", &own),
            b: right.clone(),
            why: "UnknownIssuer",
        },
        Row {
            what: "a stranger listens",
            a: right.clone(),
            b: other.flags("stranger", &own),
            why: "UnknownIssuer",
        },
        Row {
            what: "another host listens",
            a: right.clone(),
            b: own.flags("elsewhere", &own),
            why: "not valid for name",
        },
        Row {
            what: "who connects has none",
            a: clear.clone(),
            b: right.clone(),
            why: "do not agree",
        },
        Row {
            what: "who listens has none",
            a: right.clone(),
            b: clear,
            why: "this is not a steadfast pair",
        },
    ];
    for Row { what, a, b, why } in rows {
        let (a, b) = ends(&site, &a, &b);
        let both = format!("{what}:\n{}---\n{}", said(&a), said(&b));
        assert_eq!([a.status.code(), b.status.code()], [Some(121); 2], "{both}");
        assert!(both.contains(why), "{both}");
        assert!(a.stdout.is_empty() && b.stdout.is_empty(), "{both}");
    }
    fs::remove_dir_all(dir).expect("clean");
    fs::remove_dir_all(keys).expect("clean");
}

#[test]
fn files_that_are_no_certificates_are_named() {
    let dir = with_table("tls-files");
    let keys = seed("tls-files-keys");
    let site = sqlite_site(&dir);
    let own = Authority::new(&keys, "own");
    own.issue("one", HERE, VALID);
    own.issue("two", HERE, VALID);
    let at = |name: &str| own.dir.join(name).display().to_string();
    let rows = [
        ([at("one.pem"), at("two.key"), at("ca.pem")], "does not fit"),
        (
            [at("one.key"), at("one.key"), at("ca.pem")],
            "has no certificate",
        ),
        (
            [at("one.pem"), at("one.pem"), at("ca.pem")],
            "has no private key",
        ),
        (
            [at("one.pem"), at("one.key"), at("absent")],
            "has no certificate",
        ),
    ];
    for ([cert, key, ca], why) in rows {
        let flags = ["--tls-cert", &cert, "--tls-key", &key, "--tls-ca", &ca];
        let output = start(&site, "check", &flags)
            .wait_with_output()
            .expect("it ends");
        assert_eq!(output.status.code(), Some(121), "{}", said(&output));
        assert!(said(&output).contains(why), "{why}: {}", said(&output));
    }
    fs::remove_dir_all(dir).expect("clean");
    fs::remove_dir_all(keys).expect("clean");
}

/// An etcd of one machine, which believes those that `own` has signed.
struct Etcd(std::process::Child, PathBuf);

impl Etcd {
    fn start(own: &Authority, port: u16) -> Self {
        let dir = seed("etcd");
        let at = |name: &str| own.dir.join(name).display().to_string();
        let peers = format!("http://127.0.0.1:{}", free_port());
        let url = format!("https://127.0.0.1:{port}");
        let child = Command::new("etcd")
            .args([
                "--name",
                "one",
                "--log-level",
                "error",
                "--client-cert-auth",
            ])
            .args([
                "--cert-file",
                &at("etcd.pem"),
                "--key-file",
                &at("etcd.key"),
            ])
            .args(["--trusted-ca-file", &at("ca.pem")])
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", &peers])
            .args(["--initial-advertise-peer-urls", &peers])
            .args(["--initial-cluster", &format!("one={peers}")])
            .arg("--data-dir")
            .arg(dir.join("data"))
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("etcd is installed");
        Self(child, dir)
    }
}

impl Etcd {
    fn signal(&self, signal: i32) {
        steadfast_sys::child::kill(self.0.id().cast_signed(), signal);
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = fs::remove_dir_all(&self.1);
    }
}

#[test]
fn a_witness_by_https_decides_and_one_of_another_authority_is_not_believed() {
    let dir = with_table("tls-etcd");
    let keys = seed("tls-etcd-keys");
    let site = sqlite_site(&dir);
    let (own, other) = (Authority::new(&keys, "own"), Authority::new(&keys, "other"));
    for name in ["etcd", "site"] {
        own.issue(name, HERE, VALID);
    }
    let port = free_port();
    let etcd = Etcd::start(&own, port);
    let url = format!("https://127.0.0.1:{port}");
    let believing = |ca: &Authority| -> Vec<String> {
        let ca = ca.dir.join("ca.pem").display().to_string();
        let at = |name: &str| own.dir.join(name).display().to_string();
        let words = ["--witness", &url, "--witness-ca", &ca, "--witness-cert"];
        let own = [&at("site.pem"), "--witness-key", &at("site.key")];
        words.iter().chain(&own).map(ToString::to_string).collect()
    };
    let check = |flags: &[String]| {
        let output = started(&site, "check", flags).wait_with_output();
        let output = output.expect("it ends");
        (output.status.code(), said(&output))
    };
    let right = believing(&own);
    let deadline = std::time::Instant::now() + LIMIT;
    while check(&right).0 != Some(0) {
        assert!(std::time::Instant::now() < deadline, "{:?}", check(&right));
    }
    for (flags, why) in [
        (believing(&other), "UnknownIssuer"),
        (right[..4].to_vec(), "does not"), // etcd asks for a certificate
        (right[..2].to_vec(), "--witness-ca"),
    ] {
        let (status, said) = check(&flags);
        assert_eq!(status, Some(121), "{said}");
        assert!(said.contains(why), "{why}: {said}");
    }

    let address = format!("127.0.0.1:{}", free_port());
    let with = |flag: &str| [&[flag.to_owned(), address.clone()], &right[..]].concat();
    // It is slow when they start, and is waited for.
    etcd.signal(libc::SIGSTOP);
    let b = started(&site, "secondary", &with("--listen"));
    let mut both = Both::with(started(&site, "primary", &with("--peer")), b);
    // Longer than one question to it is (witness.rs, `ANSWER_LIMIT`).
    std::thread::sleep(std::time::Duration::from_millis(2500));
    etcd.signal(libc::SIGCONT);
    assert_eq!(both.ask(CHANGE), "200");
    both.a.kill().expect("a child");
    let mut from = std::io::BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, "SELECT 'here';");
    // The primary's last word, if this site has not heard that it was said.
    if answer == "200" {
        answer.clear();
        std::io::BufRead::read_line(&mut from, &mut answer).expect("it answers");
    }
    assert_eq!(answer.trim_end(), "here");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
    fs::remove_dir_all(keys).expect("clean");
}
