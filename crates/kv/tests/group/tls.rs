//! Certificates: replicas and clients speak TLS, and whoever shows a wrong one is told why.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::serve::Hosts;
use super::*;

/// An authority, and certificates that it has signed, in a folder.
struct Authority(PathBuf);

fn openssl(dir: &Path, line: &str) {
    let done = Command::new("openssl")
        .args(line.split(' '))
        .current_dir(dir)
        .output()
        .unwrap();
    assert!(done.status.success(), "{line}: {}", text(&done.stderr));
}

impl Authority {
    fn new(dir: &Path, name: &str) -> Self {
        let dir = dir.join(name);
        std::fs::create_dir_all(&dir).unwrap();
        openssl(
            &dir,
            &format!(
                "req -x509 -newkey ed25519 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN={name} -addext keyUsage=critical,keyCertSign"
            ),
        );
        Self(dir)
    }

    fn sign(&self, name: &str, host: &str, days: &str) {
        let dir = &self.0;
        let file = dir.join(format!("{name}.ext"));
        std::fs::write(file, format!("subjectAltName={host}\n")).unwrap();
        openssl(
            dir,
            &format!(
                "req -newkey ed25519 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name}"
            ),
        );
        openssl(
            dir,
            &format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days {days} -extfile {name}.ext -out {name}.pem"
            ),
        );
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Flags of a replica that shows this certificate.
    fn flags(&self, name: &str) -> [String; 6] {
        let (certificate, key) = (format!("{name}.pem"), format!("{name}.key"));
        [
            "--tls-cert".to_owned(),
            self.file(&certificate),
            "--tls-key".to_owned(),
            self.file(&key),
            "--tls-ca".to_owned(),
            self.file("ca.pem"),
        ]
    }
}

/// What a client of TLS is answered; `openssl s_client` is one that has nothing of ours in it.
fn asked(at: SocketAddr, authority: &Authority, more: &[String], request: &str) -> String {
    let mut child = Command::new("openssl")
        .args([
            "s_client",
            "-quiet",
            "-verify_return_error",
            "-connect",
            &at.to_string(),
        ])
        .args(["-CAfile", &authority.file("ca.pem")])
        .args(more)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let _ = input.write_all(request.as_bytes());
    let mut said = String::new();
    let _ = child.stdout.take().unwrap().read_to_string(&mut said);
    drop(input);
    let _ = child.wait();
    said
}

#[test]
fn replicas_and_clients_speak_tls_and_who_shows_no_right_certificate_is_kept_out() {
    let mut hosts = Hosts::new("tls", &["--tls-clients", "known"]);
    let right = Authority::new(&hosts.dir, "right");
    let other = Authority::new(&hosts.dir, "other");
    right.sign("replica", "IP:127.0.0.1", "2");
    right.sign("client", "DNS:client", "2");
    other.sign("replica", "IP:127.0.0.1", "2");
    hosts.more.extend(right.flags("replica"));
    for replica in [0, 1] {
        hosts.start(replica);
    }
    // One of another authority: it is kept out, and says why; nobody is hurt.
    let own = hosts.more.split_off(2);
    hosts.more.extend(other.flags("replica"));
    hosts.start(2);
    hosts.wait("the wrong certificate is told", || {
        hosts.heard("TLS: requirement: a certificate")
            && hosts.heard("found: one of another authority")
    });
    hosts.end(2, "-KILL");
    hosts.more.truncate(2);
    hosts.more.extend(own);
    hosts.start(2);
    for replica in 0..3 {
        hosts.wait_ready(replica);
    }

    let known = [
        "-cert".to_owned(),
        right.file("client.pem"),
        "-key".to_owned(),
        right.file("client.key"),
    ];
    let said = asked(
        hosts.clients[0],
        &right,
        &known,
        "set a 0 0 5\r\nhello\r\nquit\r\n",
    );
    assert_eq!(said, "STORED\r\n");
    let said = asked(hosts.clients[2], &right, &known, "get a\r\nquit\r\n");
    assert_eq!(said, "VALUE a 0 5\r\nhello\r\nEND\r\n");
    // Without a certificate, with another authority's, and in the clear.
    assert_eq!(
        asked(hosts.clients[0], &right, &[], "get a\r\nquit\r\n"),
        ""
    );
    assert_eq!(
        asked(hosts.clients[0], &other, &known, "get a\r\nquit\r\n"),
        ""
    );
    let mut plain = Line::to(hosts.clients[0]);
    plain.send(b"get a\r\n");
    let mut said = Vec::new();
    let _ = plain.0.read_to_end(&mut said);
    assert!(!text(&said).contains("VALUE"), "{}", text(&said));

    // The commands speak it too, and say what is missing.
    let status = |more: &[String]| {
        let at = hosts.clients[1].to_string();
        kv().args(["status", "--json", "--at", &at])
            .args(more)
            .output()
            .unwrap()
    };
    let said = status(&right.flags("client"));
    let said: Value = serde_json::from_slice(&said.stdout).expect("a status");
    assert_eq!(said["members"].as_array().unwrap().len(), 3);
    let said = status(&[]);
    assert!(!said.status.success() && text(&said.stderr).contains("fix:   --tls-ca FILE"));
    let said = status(&["--tls-ca".to_owned(), other.file("ca.pem")]);
    let said = text(&said.stderr);
    assert!(said.contains("found: one of another authority"), "{said}");

    let struck = kv()
        .args(["strike", "--at", &hosts.clients[0].to_string()])
        .args(right.flags("client"))
        .arg("replica=1 object=item:a byte=2 bit=3")
        .output()
        .unwrap();
    assert!(struck.status.success(), "{}", text(&struck.stderr));
    let said = asked(hosts.clients[1], &right, &known, "get a\r\nquit\r\n");
    assert_eq!(said, "VALUE a 0 5\r\nhello\r\nEND\r\n");
    hosts.wait("the vote works over TLS", || hosts.heard("repaired"));
}

#[test]
fn a_certificate_that_others_would_refuse_is_refused_before_anything_starts() {
    let hosts = Hosts::new("tls-wrong", &[]);
    let right = Authority::new(&hosts.dir, "right");
    let other = Authority::new(&hosts.dir, "other");
    right.sign("good", "IP:127.0.0.1", "2");
    right.sign("old", "IP:127.0.0.1", "0");
    right.sign("name", "DNS:elsewhere", "2");
    other.sign("good", "IP:127.0.0.1", "2");
    std::fs::write(right.file("empty.pem"), "").unwrap();
    std::thread::sleep(Duration::from_millis(1100));
    let mix = |certificate: &str, key: &str, authority: &str| {
        [
            "--tls-cert",
            certificate,
            "--tls-key",
            key,
            "--tls-ca",
            authority,
        ]
        .map(str::to_owned)
    };
    let (good, key, ca) = (
        right.file("good.pem"),
        right.file("good.key"),
        right.file("ca.pem"),
    );
    let open = right.file("open.key");
    std::fs::copy(&key, &open).unwrap();
    let mode = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(&open, mode).unwrap();
    for (flags, words) in [
        (right.flags("old"), "found: one that has expired"),
        (right.flags("name"), "found: one for another host"),
        (
            mix(&good, &key, &other.file("ca.pem")),
            "found: one of another authority",
        ),
        (
            mix(&good, &other.file("good.key"), &ca),
            "requirement: the key of --tls-cert",
        ),
        (
            mix(&right.file("empty.pem"), &key, &ca),
            "requirement: a certificate; found: none",
        ),
        (
            mix(&right.file("none.pem"), &key, &ca),
            "requirement: certificates; found:",
        ),
        (mix(&good, &good, &ca), "requirement: a private key; found:"),
        (
            mix(&good, &open, &ca),
            "closed to other users; found: mode 644",
        ),
    ] {
        let done = hosts.command(0).args(&flags).output().unwrap();
        let said = text(&done.stderr);
        assert!(!done.status.success(), "{flags:?}");
        assert!(said.contains(words), "{words}: {said}");
    }
    let done = hosts
        .command(0)
        .args(["--tls-clients", "on"])
        .output()
        .unwrap();
    assert!(text(&done.stderr).contains("a certificate to show; found: none"));
}
