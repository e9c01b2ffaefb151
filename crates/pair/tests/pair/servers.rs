//! Servers of several processes and threads, as they are installed: a wrong page of either disk, and the loss of the primary.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::join::{Told, flags};
use crate::several::left_alone;
use crate::sites::*;
use crate::switch::order;

/// 20 KB of which each page is another one.
pub(crate) fn page() -> Vec<u8> {
    (0..20_480_u32)
        .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// What a server of a host answers, or why it does not.
pub(crate) fn get(net: u32, port: u16) -> Result<Vec<u8>, String> {
    let ask = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} && printf 'GET /file HTTP/1.0\\r\\n\\r\\n' >&3 && timeout 60 cat <&3"
    );
    let output = Command::new("nsenter")
        .args(["--target", &net.to_string(), "--net", "bash", "-c", &ask])
        .output()
        .expect("bash is installed");
    let mut answer = output.stdout;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = head.map(|at| answer.split_off(at + 4));
    body.ok_or_else(|| String::from_utf8_lossy(&[answer, output.stderr].concat()).into_owned())
}

/// As soon as it serves.
pub(crate) fn get_at_last(net: u32, port: u16) -> Vec<u8> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match get(net, port) {
            Ok(body) => return body,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn strike_at(site: &Child, name: &str, at: u64) {
    let path = format!("/proc/{}/root/mnt/data/{name}", site.id());
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.expect("the site's file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("inside the file");
    byte[0] ^= 2;
    file.write_all_at(&byte, at).expect("it is stored");
}

/// The file in a directory of its own, which others than root may look at.
pub(crate) fn with_page(name: &str) -> (PathBuf, PathBuf) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("file"), page()).expect("a file");
    for path in [&dir, &data] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a directory");
    }
    (dir, data)
}

/// How the other site comes to lead.
pub(crate) const TURNS: [&str; 2] = ["killed", "detached"];

/// The site that leads is lost, or taken out.
pub(crate) fn turn(how: &str, both: &mut Both) {
    if how == "killed" {
        both.a.kill().expect("a child");
        return;
    }
    let answer = order("detach", &both.a);
    if answer != (Some(0), "the other site leads".to_owned()) {
        both.b.kill().expect("a child");
        panic!("{answer:?}");
    }
    assert_eq!(both.a.wait().expect("a child").code(), Some(0));
}

fn serves(name: &str, configure: impl Fn(&Path, u16) -> Vec<String> + Sync) {
    if !is_root() {
        return; // these servers start as root
    }
    side_by_side(&TURNS, |how| {
        serves_until(how, &format!("{name}-{how}"), &configure);
    });
}

fn serves_until(how: &str, name: &str, configure: impl Fn(&Path, u16) -> Vec<String>) {
    let (dir, data) = with_page(name);
    let port = free_port();
    let site = Site {
        command: configure(&dir, port),
        ..sqlite_site(&data)
    };
    let witness = Witness::new(name);
    let (mut both, cables) = cabled(&site, &witness, 5000, &[]);
    let [a, b, _] = cables.nets();
    assert_eq!(get_at_last(a, port), page());
    for struck in [&both.a, &both.b] {
        strike_at(struck, "file", 9000);
        assert_eq!(get(a, port), Ok(page()));
    }
    turn(how, &mut both);
    for _ in 0..20 {
        assert_eq!(get_at_last(b, port), page());
    }
    // What the primary's command has said before it was killed is in its pipe.
    both.b.kill().expect("a child");
    let ends = both.end();
    for struck in ["disk of A, file page 2", "disk of B, file page 2"] {
        assert_eq!(ends.said().matches(struck).count(), 2, "{}", ends.said());
    }
    let line = if how == "killed" {
        "this site goes on alone"
    } else {
        "the primary has handed its program over; this site leads"
    };
    assert_eq!(ends.said().matches(line).count(), 1, "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

pub(crate) fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A master, two workers, and a pair of sockets between each two of them.
pub(crate) fn nginx(dir: &Path, port: u16) -> Vec<String> {
    let config = dir.join("nginx.conf");
    let text = format!(
        "daemon off; user root; worker_processes 2; pid /mnt/pid; error_log /mnt/data/error; events {{}}\n\
         http {{ access_log off; sendfile on; client_body_temp_path /mnt/b; proxy_temp_path /mnt/p; fastcgi_temp_path /mnt/f; \
         uwsgi_temp_path /mnt/u; scgi_temp_path /mnt/s; server {{ listen 127.0.0.1:{port}; root /mnt/data; }} }}\n"
    );
    fs::write(&config, text).expect("a file");
    words(&format!("nginx -e /mnt/data/error -c {}", config.display()))
}

/// A script on the third host, and what it says, line by line.
fn client(cables: &Cables, script: &str) -> (Child, impl FnMut() -> String) {
    let mut client = Command::new("nsenter")
        .args(["--target", &cables.nets()[2].to_string(), "--net"])
        .args(["timeout", "60", "bash", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash is installed");
    let mut lines = BufReader::new(client.stdout.take().expect("piped")).lines();
    let line = move || {
        lines
            .next()
            .map_or_else(String::new, |line| line.expect("text"))
    };
    (client, line)
}

#[test]
fn nginx_with_workers_serves_on() {
    serves("nginx", nginx);
}

fn apache(dir: &Path, port: u16, module: &str, more: &str) -> Vec<String> {
    let config = dir.join("apache.conf");
    let modules = "/usr/lib/apache2/modules";
    let text = format!(
        "ServerRoot {}\nLoadModule mpm_{module}_module {modules}/mod_mpm_{module}.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\nServerName localhost\nListen 0.0.0.0:{port}\nPidFile /mnt/pid\n\
         DefaultRuntimeDir /mnt\nMutex sysvsem\nErrorLog /mnt/data/error\nDocumentRoot /mnt/data\nEnableSendfile On\n\
         User www-data\nGroup www-data\nStartServers 2\nServerLimit 4\n{more}\n",
        dir.display()
    );
    fs::write(&config, text).expect("a file");
    words(&format!("apache2 -DFOREGROUND -f {}", config.display()))
}

pub(crate) fn prefork(dir: &Path, port: u16) -> Vec<String> {
    let more = "MinSpareServers 1\nMaxSpareServers 2\nMaxRequestWorkers 4";
    apache(dir, port, "prefork", more)
}

pub(crate) fn event(dir: &Path, port: u16) -> Vec<String> {
    let more = "ThreadsPerChild 4\nMinSpareThreads 2\nMaxSpareThreads 8\nMaxRequestWorkers 16\nThreadLimit 4";
    apache(dir, port, "event", more)
}

#[test]
fn apache_with_a_process_a_client_serves_on() {
    serves("apache-prefork", prefork);
}

#[test]
fn apache_with_processes_of_many_threads_serves_on() {
    serves("apache-event", event);
}

/// Each is asked for a page before and after.
#[test]
fn a_hundred_connections_live_on_when_the_host_that_leads_is_lost() {
    if !is_root() {
        return; // networks of their own
    }
    let (dir, data) = with_page("hundred");
    let port = free_port();
    let config = dir.join("nginx.conf");
    let text = format!(
        "daemon off; master_process off; user root; pid /mnt/pid; error_log /mnt/error; events {{ worker_connections 256; }}\n\
         http {{ access_log off; sendfile on; client_body_temp_path /mnt/b; proxy_temp_path /mnt/p; fastcgi_temp_path /mnt/f; \
         uwsgi_temp_path /mnt/u; scgi_temp_path /mnt/s; server {{ listen 10.96.0.5:{port}; root /mnt/data; }} }}\n"
    );
    fs::write(&config, text).expect("a file");
    let site = Site {
        command: words(&format!("nginx -e /mnt/error -c {}", config.display())),
        ..sqlite_site(&data)
    };
    let witness = Witness::new("hundred");
    let address = ["--address", "10.96.0.5/24@v"];
    let (mut both, cables) = cabled(&site, &witness, 1000, &address);
    let ask = "ask() { printf 'GET /file HTTP/1.1\\r\\nHost: x\\r\\n\\r\\n' >&$1; while IFS= read -r line <&$1 && [ ${#line} -gt 1 ]; do :; done; \
               head -c 20480 <&$1 | cksum; }";
    let script = format!(
        "{ask}; until exec {{fd}}<>/dev/tcp/10.96.0.5/{port}; do sleep 0.05; done 2>/dev/null; fds=($fd)\n\
         for i in {{2..100}}; do exec {{fd}}<>/dev/tcp/10.96.0.5/{port}; fds+=($fd); done\n\
         for fd in ${{fds[@]}}; do ask $fd; done | sort | uniq -c | tr -s ' '; echo asked; read line\n\
         for fd in ${{fds[@]}}; do ask $fd; done | sort | uniq -c | tr -s ' '"
    );
    let (mut client, mut line) = client(&cables, &script);
    let first = line();
    let is_right = first.starts_with(" 100 ") && first.ends_with(" 20480");
    assert_eq!((is_right, line()), (true, "asked".into()), "{first}");
    cables.ip(2, "link set va down");
    both.a.kill().expect("a child");
    writeln!(client.stdin.as_ref().expect("piped"), "on").expect("it reads");
    assert_eq!(line(), first, "each has the same page as before");
    both.b.kill().expect("a child");
    let ends = both.end();
    let taken = "with 100 connections (0 cut)";
    assert!(ends.said().contains(taken), "{}", ends.said());
    client.wait().expect("a child");
    fs::remove_dir_all(dir).expect("clean");
}

fn downloads_of(dir: &Path, port: u16, who: &str) -> Vec<String> {
    let config = dir.join("nginx.conf");
    let text = format!(
        "daemon off; {who} pid /mnt/pid; error_log /mnt/error; events {{}}\n\
         http {{ access_log off; sendfile on; client_body_temp_path /mnt/b; proxy_temp_path /mnt/p; fastcgi_temp_path /mnt/f; \
         uwsgi_temp_path /mnt/u; scgi_temp_path /mnt/s; server {{ listen 10.96.0.5:{port}; root /mnt/data; }} }}\n"
    );
    fs::write(&config, text).expect("a file");
    words(&format!("nginx -e /mnt/error -c {}", config.display()))
}

/// The server has the kernel send the file (sendfile). The client has a part of it when the primary is lost, and gets the rest: from one
/// process of root's, and from those that have given up root, at a port that they may not bind to.
#[test]
fn a_download_that_the_kernel_sends_goes_on_when_the_host_that_leads_is_lost() {
    if !is_root() {
        return; // networks of their own
    }
    type Configure = fn(&Path, u16) -> Vec<String>;
    let all: [(&str, Configure); 4] = [
        ("root", |dir, port| {
            downloads_of(dir, port, "master_process off; user root;")
        }),
        ("workers", |dir, port| {
            downloads_of(dir, port, "worker_processes 2; user www-data;")
        }),
        ("prefork", prefork),
        ("event", event),
    ];
    side_by_side(&all, |(name, configure)| download_goes_on(name, configure));
}

fn download_goes_on(name: &str, configure: impl Fn(&Path, u16) -> Vec<String>) {
    const BYTES: usize = 12 << 20;
    let (name, port) = (format!("download-{name}"), 80);
    let (dir, data) = with_page(&name);
    let whole: Vec<u8> = page().into_iter().cycle().take(BYTES).collect();
    fs::write(data.join("file"), whole).expect("a file");
    let site = Site {
        command: configure(&dir, port),
        ..sqlite_site(&data)
    };
    let witness = Witness::new(&name);
    let address = ["--address", "10.96.0.5/24@v"];
    let (mut both, cables) = cabled(&site, &witness, 1000, &address);
    let script = format!(
        "until exec 3<>/dev/tcp/10.96.0.5/{port}; do sleep 0.05; done 2>/dev/null; exec 9>&1\n\
         printf 'GET /file HTTP/1.0\\r\\n\\r\\n' >&3\n\
         {{ head -c 3000000 <&3; echo asked >&9; read line; cat <&3; }} | tail -c {BYTES} | cksum"
    );
    let (mut client, mut line) = client(&cables, &script);
    assert_eq!(line(), "asked");
    cables.ip(2, "link set va down");
    both.a.kill().expect("a child");
    writeln!(client.stdin.as_ref().expect("piped"), "on").expect("it reads");
    let right = Command::new("cksum")
        .stdin(fs::File::open(data.join("file")).expect("a file"))
        .output()
        .expect("cksum is installed");
    assert_eq!(line(), String::from_utf8_lossy(&right.stdout).trim_end());
    both.b.kill().expect("a child");
    let ends = both.end();
    let taken = "with 1 connections (0 cut)";
    assert!(ends.said().contains(taken), "{}", ends.said());
    client.wait().expect("a child");
    fs::remove_dir_all(dir).expect("clean");
}

/// Connects to a port of this host, and does what lines say.
fn connects(seed: &Path, port: u16) -> Site {
    let script = format!(
        "trap '' PIPE; exec 3<>/dev/tcp/127.0.0.1/{port}; while read -r line; do eval \"$line\"; done"
    );
    Site {
        command: ["/bin/bash", "-c", &script].map(String::from).to_vec(),
        ..sqlite_site(seed)
    }
}

const WRITES: &str = "{ echo more >&3; } 2>/dev/null || echo cut";

/// The peer of a connection that the program has opened hears nothing of the other host: to the program it is a broken connection.
#[test]
fn a_connection_that_the_program_has_opened_is_cut_and_it_goes_on() {
    let dir = seed("outgoing");
    let peer = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = peer.local_addr().expect("bound").port();
    let site = connects(&dir, port);
    let witness = Witness::new("outgoing");
    let mut both = witnessed(&site, &witness);
    assert_eq!(both.ask("echo hello >&3; echo sent"), "sent");
    let (stream, _) = peer.accept().expect("it has connected");
    let mut heard = String::new();
    let mut stream = BufReader::new(stream);
    stream.read_line(&mut heard).expect("it has written");
    assert_eq!(heard, "hello\n");
    // Nobody has to give it up.
    let (status, why) = order("detach", &both.a);
    assert_eq!(status, Some(1), "{why}");
    assert!(why.contains("descriptor 3 of the program"), "{why}");
    both.a.kill().expect("a child");
    let mut from = BufReader::new(both.b.stdout.take().expect("piped"));
    let mut answer = ask_secondary(&mut both.b, &mut from, WRITES);
    if answer == "sent" {
        answer = ask_secondary(&mut both.b, &mut from, "echo again"); // what the lost one was not heard to say
    }
    assert_eq!(answer, "cut");
    drop(both.b.stdin.take());
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    let line = "with 0 connections (1 cut)";
    assert!(ends.said().contains(line), "{}", ends.said());
    fs::remove_dir_all(dir).expect("clean");
}

#[test]
fn a_connection_that_the_program_has_opened_keeps_no_site_from_joining() {
    let dir = seed("outgoing-join");
    let peer = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = peer.local_addr().expect("bound").port();
    let (sites, witness) = (
        [0; 2].map(|_| connects(&dir, port)),
        Witness::new("outgoing-join"),
    );
    let said = witness.flags(2000);
    let (mut a, door) = left_alone(&sites, ["127.0.0.1"; 2], &said, &witness.0);
    assert_eq!(a.ask("echo hello >&3; echo sent"), "sent");
    let to = flags(&said, &["--peer", &door]);
    let mut c = Told::start(&sites[1], "join", &to, &witness.0, "c");
    a.wait_for("the other site is back");
    assert_eq!(a.ask("echo more >&3; echo again"), "again");
    a.kill();
    c.wait_for("this site goes on alone");
    let mut answer = c.ask(WRITES);
    if answer == "again" {
        answer = c.line(); // what the lost one was not heard to say
    }
    assert_eq!(answer, "cut");
    let (status, said) = c.end();
    assert_eq!(status, Some(0), "{said}");
    fs::remove_dir_all(dir).expect("clean");
}
