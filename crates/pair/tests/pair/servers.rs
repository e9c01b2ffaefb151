//! Servers of several processes and threads, as they are installed: a wrong page of either disk, and the loss of the primary.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::sites::*;

/// 20 KB of which each page is another one.
fn page() -> Vec<u8> {
    (0..20_480_u32)
        .map(|i| i.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

/// What a server answers, or why it does not.
fn get(port: u16) -> Result<Vec<u8>, String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(LIMIT)).expect("a socket");
    let mut answer = Vec::new();
    stream
        .write_all(b"GET /file HTTP/1.0\r\n\r\n")
        .and_then(|()| stream.read_to_end(&mut answer))
        .map_err(|error| error.to_string())?;
    let head = answer.windows(4).position(|four| four == b"\r\n\r\n");
    let body = head.map(|at| answer.split_off(at + 4));
    body.ok_or_else(|| String::from_utf8_lossy(&answer).into_owned())
}

/// As soon as it serves.
fn get_at_last(port: u16) -> Vec<u8> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match get(port) {
            Ok(body) => return body,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn strike_at(site: &Child, name: &str, at: u64) {
    let path = format!("/proc/{}/root/mnt/data/{name}", site.id());
    let file = fs::OpenOptions::new().read(true).write(true).open(path);
    let file = file.expect("the site's file");
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).expect("inside the file");
    byte[0] ^= 2;
    file.write_all_at(&byte, at).expect("it is stored");
}

/// The file in a directory of its own, which others than root may look at.
fn with_page(name: &str) -> (PathBuf, PathBuf) {
    let dir = seed(name);
    let data = dir.join("data");
    fs::create_dir(&data).expect("a directory");
    fs::write(data.join("file"), page()).expect("a file");
    for path in [&dir, &data] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a directory");
    }
    (dir, data)
}

fn serves(name: &str, configure: impl Fn(&Path, u16) -> Vec<String>) {
    if !is_root() {
        return; // these servers start as root
    }
    let (dir, data) = with_page(name);
    let port = free_port();
    let site = Site {
        command: configure(&dir, port),
        ..sqlite_site(&data)
    };
    let witness = Witness::new(name);
    let mut both = witnessed(&site, &witness);
    assert_eq!(get_at_last(port), page());
    for struck in [&both.a, &both.b] {
        strike_at(struck, "file", 9000);
        assert_eq!(get(port), Ok(page()));
    }
    both.a.kill().expect("a child");
    for _ in 0..20 {
        assert_eq!(get_at_last(port), page());
    }
    // What the primary's command has said before it was killed is in its pipe.
    both.b.kill().expect("a child");
    let ends = both.end();
    for struck in ["disk of A, file page 2", "disk of B, file page 2"] {
        assert_eq!(ends.said().matches(struck).count(), 2, "{}", ends.said());
    }
    assert_eq!(
        ends.said().matches("this site goes on alone").count(),
        1,
        "{}",
        ends.said()
    );
    fs::remove_dir_all(dir).expect("clean");
}

/// The directory with PostgreSQL's programs.
fn postgres() -> PathBuf {
    let mut found: Vec<PathBuf> = fs::read_dir("/usr/lib/postgresql")
        .expect("postgresql is installed")
        .flatten()
        .map(|version| version.path().join("bin"))
        .collect();
    found.sort();
    found.pop().expect("a version")
}

const AS_POSTGRES: [&str; 6] = [
    "setpriv",
    "--reuid",
    "postgres",
    "--regid",
    "postgres",
    "--clear-groups",
];

fn done(program: &Path, words: &str) -> String {
    tried(program, words).unwrap_or_else(|failed| panic!("{failed}"))
}

fn tried(program: &Path, words: &str) -> Result<String, String> {
    let output = Command::new(AS_POSTGRES[0])
        .args(&AS_POSTGRES[1..])
        .arg(program)
        .args(words.split(' ').map(|word| word.replace('~', " ")))
        .current_dir("/")
        .output()
        .expect("it runs");
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{}: {said}", program.display()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// A database with the tables of pgbench, and what its server says of them: processes that share memory, and files of it.
#[test]
fn postgresql_keeps_what_it_has_committed() {
    if !is_root() {
        return; // the files belong to another user
    }
    const SUM: &str =
        "-AtXc select~sum(abalance),sum(hashtext(filler)),count(*)~from~pgbench_accounts";
    let bin = postgres();
    let (dir, data) = (seed("postgres"), seed("postgres").join("data"));
    fs::create_dir(&data).expect("a directory");
    for path in [&dir, &data] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a directory");
        std::os::unix::fs::chown(path, Some(id_of("-u")), Some(id_of("-g"))).expect("root");
    }
    let at = data.join("pg").display().to_string();
    let port = free_port();
    let client = format!("-h 127.0.0.1 -p {port} -U postgres");
    let options = format!("-p {port} -k /tmp -c listen_addresses=127.0.0.1 -c shared_buffers=2MB");
    done(
        &bin.join("initdb"),
        &format!("-A trust -U postgres --no-sync --wal-segsize=1 -D {at}"),
    );
    let control = bin.join("pg_ctl");
    let quoted = options.replace(' ', "~");
    done(
        &control,
        &format!("-D {at} -s -w -l /dev/null -o {quoted} start"),
    );
    done(&bin.join("pgbench"), &format!("{client} -i -q postgres"));
    done(
        &bin.join("psql"),
        &format!("{client} -qXc create~extension~amcheck postgres"),
    );
    let file = "-AtXc select~pg_relation_filepath('pgbench_accounts')";
    let file = done(&bin.join("psql"), &format!("{client} {file} postgres"));
    let right = done(&bin.join("psql"), &format!("{client} {SUM} postgres"));
    done(&control, &format!("-D {at} -s -w stop"));

    let server = format!(
        "{} {} -D /mnt/data/pg {}",
        AS_POSTGRES.join(" "),
        bin.join("postgres").display(),
        options.replace("/tmp", "/mnt/data")
    );
    let site = Site {
        command: words(&server),
        data_bytes: "300m",
        ledger_bytes: "16m",
        ..sqlite_site(&data)
    };
    let witness = Witness::new("postgres");
    let mut both = witnessed(&site, &witness);
    let ready = bin.join("pg_isready");
    let is_ready = || {
        let mut ready = Command::new(&ready);
        let asked = ready.args(client.split(' ')).stdout(Stdio::null()).status();
        asked.expect("it runs").success()
    };
    let deadline = Instant::now() + LIMIT;
    while !is_ready() {
        assert!(Instant::now() < deadline, "it is not ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    let sum = || done(&bin.join("psql"), &format!("{client} {SUM} postgres"));
    assert_eq!(sum(), right);
    for struck in [&both.a, &both.b] {
        strike_at(struck, &format!("pg/{file}"), 100 * 4096 + 300);
        assert_eq!(sum(), right);
    }
    let load = format!("{client} -n -c 2 -t 20 postgres");
    done(&bin.join("pgbench"), &load);
    let committed = sum();
    both.a.kill().expect("a child");
    // Until all of its processes lead on the other site, nobody listens.
    let deadline = Instant::now() + LIMIT;
    while !is_ready() {
        let has_ended = both.b.try_wait().expect("a child").is_some();
        if has_ended || Instant::now() > deadline {
            steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
            panic!("it does not serve on: {}", both.end().said());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(sum(), committed);
    if let Err(failed) = tried(&bin.join("pgbench"), &load) {
        steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
        panic!("{failed}{}", both.end().said());
    }
    done(&bin.join("pg_amcheck"), &format!("{client} postgres"));
    steadfast_sys::child::kill(both.b.id().cast_signed(), libc::SIGTERM);
    let ends = both.end();
    assert_eq!(ends.b.status.code(), Some(0), "{}", ends.said());
    let page = Path::new(&file)
        .file_name()
        .expect("a name")
        .display()
        .to_string();
    for struck in ['A', 'B'] {
        let line = format!("disk of {struck}, {page} page 100");
        assert_eq!(ends.said().matches(&line).count(), 2, "{}", ends.said());
    }
    fs::remove_dir_all(dir).expect("clean");
}

fn id_of(which: &str) -> u32 {
    let output = Command::new("id").args([which, "postgres"]).output();
    let said = String::from_utf8(output.expect("id").stdout).expect("a number");
    said.trim().parse().expect("the user postgres")
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

/// A master, two workers, and a pair of sockets between each two of them.
#[test]
fn nginx_with_workers_serves_on() {
    serves("nginx", |dir, port| {
        let config = dir.join("nginx.conf");
        let text = format!(
            "daemon off; user root; worker_processes 2; pid /mnt/pid; error_log /mnt/error; events {{}}\n\
             http {{ access_log off; sendfile off; client_body_temp_path /mnt/b; proxy_temp_path /mnt/p; fastcgi_temp_path /mnt/f; \
             uwsgi_temp_path /mnt/u; scgi_temp_path /mnt/s; server {{ listen 127.0.0.1:{port}; root /mnt/data; }} }}\n"
        );
        fs::write(&config, text).expect("a file");
        words(&format!("nginx -e /mnt/error -c {}", config.display()))
    });
}

fn apache(dir: &Path, port: u16, module: &str, more: &str) -> Vec<String> {
    let config = dir.join("apache.conf");
    let modules = "/usr/lib/apache2/modules";
    let text = format!(
        "ServerRoot {}\nLoadModule mpm_{module}_module {modules}/mod_mpm_{module}.so\n\
         LoadModule authz_core_module {modules}/mod_authz_core.so\nServerName localhost\nListen 127.0.0.1:{port}\nPidFile /mnt/pid\n\
         DefaultRuntimeDir /mnt\nMutex sysvsem\nErrorLog /mnt/error\nDocumentRoot /mnt/data\nEnableSendfile Off\nEnableMMAP Off\n\
         User www-data\nGroup www-data\nStartServers 2\nServerLimit 4\n{more}\n",
        dir.display()
    );
    fs::write(&config, text).expect("a file");
    words(&format!("apache2 -DFOREGROUND -f {}", config.display()))
}

#[test]
fn apache_with_a_process_a_client_serves_on() {
    serves("apache-prefork", |dir, port| {
        apache(
            dir,
            port,
            "prefork",
            "MinSpareServers 1\nMaxSpareServers 2\nMaxRequestWorkers 4",
        )
    });
}

#[test]
fn apache_with_processes_of_many_threads_serves_on() {
    serves("apache-event", |dir, port| {
        let more = "ThreadsPerChild 4\nMinSpareThreads 2\nMaxSpareThreads 8\nMaxRequestWorkers 16\nThreadLimit 4";
        apache(dir, port, "event", more)
    });
}
