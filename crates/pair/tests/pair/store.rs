//! A server of two processes with threads, on two hosts with an image each and networks of their own, and a client on a third host.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::join::Told;
use crate::sites::*;

const PORT: &str = "8080";
const CLIENTS: &str = "10.96.0.9";
pub(crate) const LOST_AFTER: u64 = 2000;
/// Answers of a round.
const ANSWERS: usize = 4000;
pub(crate) const DATA_PAGES: u64 = 40;

pub(crate) fn until(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn done(command: &mut Command) {
    let output = command.output().expect("it is installed");
    assert!(output.status.success(), "{command:?}: {output:?}");
}

/// What a run without a pair answers, in memory: it syncs all the time.
fn bare(dir: &Path, program: &Path, data: &Path, (shares, answers): (bool, usize)) -> Vec<String> {
    let bare = Path::new("/dev/shm").join(dir.file_name().expect("named"));
    fs::create_dir_all(&bare).expect("a directory");
    fs::copy(data.join("data"), bare.join("data")).expect("a file");
    let port = free_port().to_string();
    let mut server = Command::new(program)
        .args(["serve", &port])
        .args(shares.then_some("shared"))
        .current_dir(&bare)
        .spawn()
        .expect("it runs");
    let client = Command::new(program)
        .args(["ask", "127.0.0.1", &port, &answers.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut client = client.expect("it runs");
    let from = BufReader::new(client.stdout.take().expect("piped"));
    let right: Vec<String> = from.lines().map(|line| line.expect("text")).collect();
    assert_eq!(right.len(), answers);
    client.wait().expect("a child");
    server.wait().expect("a child");
    fs::remove_dir_all(bare).expect("clean");
    right
}

/// What all rounds have in common.
pub(crate) struct Case {
    pub(crate) dir: PathBuf,
    program: PathBuf,
    data: PathBuf,
    /// Where its processes share no memory, and where they do.
    pub(crate) right: [Vec<String>; 2],
}

impl Case {
    pub(crate) fn new(name: &str) -> Self {
        let dir = seed(name);
        let data = dir.join("data");
        fs::create_dir(&data).expect("a directory");
        let bytes: Vec<u8> = (0..u32::try_from(DATA_PAGES).expect("few") * 4096)
            .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[1])
            .collect();
        fs::write(data.join("data"), bytes).expect("a file");
        let program = built(&dir, "store");
        let right = [false, true].map(|shares| bare(&dir, &program, &data, (shares, ANSWERS)));
        Self {
            dir,
            program,
            data,
            right,
        }
    }
}

/// Who asks on a third host, and what it has been told.
pub(crate) struct Client {
    pub(crate) child: Child,
    said: Arc<Mutex<Vec<String>>>,
}

impl Client {
    pub(crate) fn start(case: &Case, net: u32) -> Self {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "nsenter", "--target"])
            .args([&net.to_string(), "--net", "--"])
            .arg(&case.program)
            .args(["ask", CLIENTS, PORT, &ANSWERS.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn();
        let mut child = child.expect("nsenter is installed");
        let said = Arc::<Mutex<Vec<String>>>::default();
        let from = BufReader::new(child.stdout.take().expect("piped"));
        let all = Arc::clone(&said);
        std::thread::spawn(move || {
            for line in from.lines().map_while(Result::ok) {
                all.lock().expect("no panic under it").push(line);
            }
        });
        Self { child, said }
    }

    pub(crate) fn answers(&self) -> usize {
        self.said.lock().expect("no panic under it").len()
    }

    /// Each is the right one.
    pub(crate) fn check(&self, right: &[String], about: &dyn Fn() -> String) {
        let said = self.said.lock().expect("no panic under it").clone();
        for (line, right) in said.iter().zip(right) {
            assert_eq!(line, right, "a wrong answer: {}", about());
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two hosts, and what is on them.
pub(crate) struct Hosts<'a> {
    pub(crate) case: &'a Case,
    pub(crate) cables: Cables,
    witness: Witness,
    pub(crate) dir: PathBuf,
}

/// Of a host, by its number.
fn name(of: usize) -> &'static str {
    ["a", "b"][of]
}

impl<'a> Hosts<'a> {
    pub(crate) fn new(case: &'a Case, round: u64) -> Self {
        let label = format!("around-{round}");
        let dir = case.dir.join(&label);
        fs::create_dir(&dir).expect("a directory");
        let this = Self {
            case,
            cables: Cables::new(),
            witness: Witness::new(&label),
            dir,
        };
        for of in 0..2 {
            fs::create_dir(this.ledger(of)).expect("a directory");
            fs::create_dir(this.dir.join(format!("at-{}", name(of)))).expect("a directory");
            let file = fs::File::create(this.image(of)).expect("a file");
            file.set_len(16 << 20).expect("sparse");
            done(
                Command::new("mkfs.ext4")
                    .args(["-q", "-F", "-b", "4096", "-O", "^has_journal", "-d"])
                    .args([&case.data, &this.image(of)]),
            );
        }
        this
    }

    pub(crate) fn image(&self, of: usize) -> PathBuf {
        self.dir.join(format!("{}.img", name(of)))
    }

    pub(crate) fn ledger(&self, of: usize) -> PathBuf {
        self.dir.join(format!("ledger-{}", name(of)))
    }

    /// Whether a device of its image is there: it goes with the last that uses it.
    pub(crate) fn has_device(&self, of: usize) -> bool {
        let mut losetup = Command::new("losetup");
        let output = losetup.arg("-j").arg(self.image(of)).output();
        !output.expect("losetup is installed").stdout.is_empty()
    }

    /// In a mount namespace of its own, with its disk at /mnt/data.
    fn within(&self, of: usize, net: bool) -> Command {
        let script = "mount -t tmpfs none /mnt && mkdir /mnt/data && mount -t tmpfs none /dev/shm && \
             device=$(losetup --find --show --direct-io=on \"$1\") && mount -t ext4 \"$device\" /mnt/data; \
             losetup --detach \"$device\"; cd /mnt/data && shift && exec \"$@\"";
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]);
        if net {
            let net = self.cables.nets()[of].to_string();
            command.args(["nsenter", "--target", &net, "--net", "--"]);
        }
        command.args(["unshare", "--mount", "--ipc", "--propagation", "private"]);
        command.args(["--", "sh", "-c", script, "sh"]);
        command.arg(self.image(of));
        command
    }

    pub(crate) fn start(&self, of: usize, side: &str, more: &[&str], shares: bool) -> Told {
        assert!(
            until(LIMIT, || !self.has_device(of)),
            "its old device is there"
        );
        let mut command = self.within(of, true);
        command.args([pair(), side]).args(more);
        command.args(self.witness.flags(LOST_AFTER));
        command.args(["--address", &format!("{CLIENTS}/24@v"), "--scrub", "50"]);
        command.arg("--ledger").arg(self.ledger(of));
        command.args(["--data", "/mnt/data", "--"]);
        command
            .arg(&self.case.program)
            .args(["serve", PORT])
            .args(shares.then_some("shared"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let child = command.stderr(Stdio::piped()).spawn();
        let named = if side == "join" { "c" } else { name(of) };
        Told::of(child.expect("unshare is installed"), &self.dir, named)
    }

    pub(crate) fn cable(&self, of: usize, state: &str) {
        let end = ["va", "vb"][of];
        self.cables.ip(2, &format!("link set {end} {state}"));
    }

    /// What `pair verify` says of a disk at rest.
    pub(crate) fn verified(&self, of: usize) -> String {
        assert!(until(LIMIT, || !self.has_device(of)), "it is in use");
        let mut command = self.within(of, false);
        command.args([pair(), "verify", "--ledger"]);
        let output = command.arg(self.ledger(of)).output().expect("it runs");
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    /// A file of a disk at rest.
    pub(crate) fn file(&self, of: usize, file: &str) -> Vec<u8> {
        assert!(until(LIMIT, || !self.has_device(of)), "it is in use");
        let output = self.within(of, false).args(["cat", file]).output();
        output.expect("it runs").stdout
    }
}
