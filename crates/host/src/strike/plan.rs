//! The first process: it starts the second one again and again, and adds up what each has told.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use steadfast_inject::chacha::Seed;
use steadfast_inject::live::Live;

use super::places::{Ends, Places};
use super::words::{Mode, Report, Target, WRONG};
use crate::clients::What;
use crate::told::Told;

/// What is struck, and how often.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) components: PathBuf,
    pub(crate) what: What,
    pub(crate) mode: Mode,
    pub(crate) handles: usize,
    pub(crate) every: Duration,
    /// Ends after so long, or after so many flips.
    pub(crate) until: Until,
    /// A client that got a wrong answer ends, and another one begins: what one flip has left does not count twice.
    pub(crate) afresh: bool,
    pub(crate) seed: Seed,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Until {
    After(Duration),
    Flips(u64),
}

/// What a plan came to.
#[derive(Debug, Default)]
pub(crate) struct Sum {
    pub(crate) flips: u64,
    pub(crate) deaths: Vec<String>,
    /// Clients that ended with a wrong answer.
    pub(crate) wrong_ends: u64,
    /// Where flips struck, and how they ended there.
    pub(crate) places: BTreeMap<&'static str, Ends>,
    pub(crate) causes: BTreeMap<String, u64>,
    pub(crate) calls: u64,
    pub(crate) wrong: u64,
    pub(crate) lost: u64,
    pub(crate) kept: usize,
    pub(crate) recovery_ns: Option<u64>,
    pub(crate) recovery_max_ns: Option<u64>,
    pub(crate) rebuilt: u64,
    pub(crate) seconds: f64,
    /// The last flip, where its place was drawn.
    pub(crate) at: Option<super::At>,
}

impl Sum {
    /// Resets that followed from a failure.
    pub(crate) fn resets(&self) -> u64 {
        let asked = steadfast_restart::Cause::Asked.word();
        let causes = self.causes.iter().filter(|(cause, _)| *cause != asked);
        causes.map(|(_, n)| n).sum()
    }

    fn add(&mut self, report: Report) {
        self.calls += report.counts.calls;
        self.wrong += report.counts.wrong;
        self.lost += report.counts.lost;
        self.kept = report.counts.kept;
        self.rebuilt += report.rebuilt;
        self.flips += report.flips;
        self.at = report.at.or(self.at);
        self.recovery_ns = report.recovery_ns.or(self.recovery_ns);
        self.recovery_max_ns = self.recovery_max_ns.max(report.recovery_max_ns);
        for (cause, n) in report.resets {
            *self.causes.entry(cause).or_default() += n;
        }
    }
}

impl Plan {
    pub(crate) fn image(&self) -> PathBuf {
        self.components
            .join(format!("{}.cwasm", self.what.component()))
    }

    /// That the image exists.
    pub(crate) fn check(&self) -> Result<(), Told> {
        if self.image().exists() {
            return Ok(());
        }
        let what = anyhow::anyhow!("{} is needed and does not exist", self.image().display());
        Err(Told::setup(
            what,
            "make build-host, or --components DIR with the images",
        ))
    }

    fn start(&self, more: &[String]) -> Result<Running, Told> {
        let own = std::env::current_exe()
            .map_err(|error| Told::setup(anyhow::Error::new(error), "a mounted /proc"))?;
        let mut command = Command::new(own);
        command.args(["client", "--mode", self.mode.word()]);
        command.args(["--what", self.what.component_word()]);
        command.args(["--handles", &self.handles.to_string(), "--components"]);
        command.arg(&self.components).args(more);
        if self.afresh {
            command.arg("--afresh");
        }
        // A death by a flip is told by its status; the kernel's core file of it would only be in the way.
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|error| {
            let what = anyhow::Error::new(error).context("the client does not start");
            Told::setup(what, "see the cause")
        })?;
        let pipe = child.stdout.take();
        let pipe = pipe.ok_or_else(|| anyhow::anyhow!("no pipe"))?;
        let mut out = BufReader::new(pipe);
        let mut line = String::new();
        let _ = out.read_line(&mut line);
        if line.trim() != "ready" {
            let _ = child.wait();
            return Err(Told::setup(
                anyhow::anyhow!("the client did not start: {}", line.trim()),
                "steadfast host check with the component shows why",
            ));
        }
        // Read at once: a pipe that is full would stop the client.
        let lines = Arc::new(AtomicU64::new(0));
        let last = Arc::new(Mutex::new(Report::default()));
        let (said, told) = (lines.clone(), last.clone());
        let places = Places::of(&self.image());
        let reader = std::thread::spawn(move || {
            let mut struck = Vec::new();
            for line in out.lines().map_while(Result::ok) {
                if let Some(place) = places.struck(&line) {
                    struck.push(place);
                } else if let Ok(report) = serde_json::from_str(&line) {
                    *told.lock().unwrap_or_else(PoisonError::into_inner) = report;
                }
                said.fetch_add(1, Ordering::Relaxed);
            }
            struck
        });
        Ok(Running {
            child,
            lines,
            last,
            reader,
        })
    }

    /// Flips in general registers while a thread stands in the component's code.
    pub(crate) fn registers(&self) -> Result<Sum, Told> {
        let ptrace = |error: std::io::Error| {
            Told::setup(
                anyhow::Error::new(error)
                    .context("the injector stops its own child by ptrace(2), which was refused"),
                "a container with CAP_SYS_PTRACE or seccomp profile that allows ptrace; kernel.yama.ptrace_scope below 3",
            )
        };
        if self.mode.apart() {
            return self.by_clock();
        }
        let mut sum = Sum::default();
        let begin = Instant::now();
        // Flips that are counted take their time: a machine that is busy with other things meets the component less often.
        let (most, end) = match self.until {
            Until::Flips(most) => (most, begin + FOR_EVER),
            Until::After(time) => (u64::MAX, begin + time),
        };
        let mut due = begin + self.every;
        while Instant::now() < end && sum.flips < most {
            let running = self.start(&[])?;
            let pid = running.child.id().cast_signed();
            let mut live = self.live(pid, sum.flips).map_err(ptrace)?;
            let mut died = false;
            while !died && Instant::now() < end && sum.flips < most {
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                // A flip that came late does not bring the next ones closer together.
                due = due.max(Instant::now()) + self.every;
                let patience = Duration::from_millis(500);
                match live.strike(patience.min(end.saturating_duration_since(Instant::now()))) {
                    Ok(Some(_)) => sum.flips += 1,
                    Ok(None) => {}
                    Err(error) if sum.flips == 0 => return Err(ptrace(error)),
                    // The process died in the meantime.
                    Err(_) => {}
                }
                died = steadfast_sys::procfs::has_ended(pid);
            }
            running.ask(self, &mut sum)?;
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }

    /// Flips at given moments in the component's own processes, which make them themselves: seen from outside, such a process mostly waits.
    fn by_clock(&self) -> Result<Sum, Told> {
        let mut sum = Sum::default();
        let begin = Instant::now();
        let (most, end) = match self.until {
            Until::Flips(most) => (most, begin + FOR_EVER),
            Until::After(time) => (u64::MAX, begin + time),
        };
        let every = self.every.as_millis().to_string();
        while Instant::now() < end && sum.flips < most {
            let seed = self.another(&sum);
            let more = ["--every-ms", &every, "--seed", &seed];
            let running = self.start(&more.map(str::to_owned))?;
            let left = most - sum.flips;
            while Instant::now() < end && running.flips() < left && !running.reader.is_finished() {
                std::thread::sleep(Duration::from_millis(2));
            }
            running.ask(self, &mut sum)?;
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }

    /// The next client's seed: each draws others.
    fn another(&self, sum: &Sum) -> String {
        fnv(&format!("{}/{}", self.seed, sum.flips)).to_string()
    }

    /// Strikes the second process, which runs the component.
    fn live(&self, pid: i32, flips: u64) -> std::io::Result<Live> {
        let mut live = Live::new(pid, &format!("{}.cwasm", self.what.component()), self.seed)?;
        // Each client is struck by other flips.
        live.skip(flips);
        Ok(live)
    }

    /// Flips that the second process makes itself, one at a time; with `exact` at drawn instructions, from that number on.
    pub(crate) fn drawn(&self, target: Target, most: u64, exact: Option<u64>) -> Result<Sum, Told> {
        let mut sum = Sum::default();
        let begin = Instant::now();
        while sum.flips < most {
            let left = (most - sum.flips).to_string();
            let mut more = vec!["--flips".to_owned(), left];
            more.extend(["--target".to_owned(), target.word().to_owned()]);
            // Flips with a place have a number, and the same seed; of others each client draws its own.
            let seed = match exact {
                Some(first) => {
                    more.extend(["--exact-from".to_owned(), (first + sum.flips).to_string()]);
                    self.seed.to_string()
                }
                None => self.another(&sum),
            };
            more.extend(["--seed".to_owned(), seed]);
            let running = self.start(&more)?;
            let before = sum.flips;
            running.ended(&mut sum, self)?;
            if sum.flips == before {
                return Err(anyhow::anyhow!("a client ended before its first flip").into());
            }
        }
        sum.seconds = begin.elapsed().as_secs_f64();
        Ok(sum)
    }
}

/// FNV-1a: a number for each text.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

struct Running {
    child: Child,
    /// How many lines it has said.
    lines: Arc<AtomicU64>,
    /// The last of them.
    last: Arc<Mutex<Report>>,
    reader: std::thread::JoinHandle<Vec<&'static str>>,
}

/// How a client ended.
enum End {
    Good,
    Wrong,
    Died(String),
}

/// How long a client may take that was asked to end. One that does not hangs in the host, which is a death as well.
const ASKED: Duration = Duration::from_secs(5);
/// Longer than any campaign.
const FOR_EVER: Duration = Duration::from_secs(86_400);

impl Running {
    /// Flips that it made itself, as told last.
    fn flips(&self) -> u64 {
        self.last
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .flips
    }

    /// Asks it to end, waits, and adds what it came to.
    fn ask(mut self, plan: &Plan, sum: &mut Sum) -> Result<(), Told> {
        drop(self.child.stdin.take());
        let end = end_of(&mut self.child, ASKED, || false)?;
        self.add(end, plan, sum)
    }

    /// Waits for its end, and adds what it came to. One that says nothing for long hangs.
    fn ended(mut self, sum: &mut Sum, plan: &Plan) -> Result<(), Told> {
        let lines = self.lines.clone();
        let mut before = 0;
        let speaks = move || {
            let now = lines.load(Ordering::Relaxed);
            std::mem::replace(&mut before, now) != now
        };
        let end = end_of(&mut self.child, ASKED, speaks)?;
        self.add(end, plan, sum)
    }

    fn add(self, end: End, plan: &Plan, sum: &mut Sum) -> Result<(), Told> {
        let struck = self.reader.join().unwrap_or_default();
        for place in &struck {
            sum.places.entry(*place).or_default().struck += 1;
        }
        // The last flip is the one that ended it.
        if let Some(place) = struck.last() {
            let ends = sum.places.entry(*place).or_default();
            ends.wrong += u64::from(matches!(end, End::Wrong));
            ends.escaped += u64::from(matches!(end, End::Died(_)));
        }
        let mut report =
            std::mem::take(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner));
        match end {
            End::Good => {}
            End::Wrong => sum.wrong_ends += 1,
            End::Died(why) => {
                sum.deaths.push(why);
                report.counts.lost += plan.handles as u64;
            }
        }
        sum.add(report);
        // What a second process holds are other handles than those that were opened at first.
        if !sum.deaths.is_empty() || sum.wrong_ends > 0 {
            sum.kept = 0;
        }
        Ok(())
    }
}

fn end_of(
    child: &mut Child,
    limit: Duration,
    mut speaks: impl FnMut() -> bool,
) -> Result<End, Told> {
    let client = |error| Told::from(anyhow::Error::new(error).context("the client"));
    let mut until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait().map_err(client)? {
            let signal = status.signal();
            return Ok(match status.code() {
                Some(0) => End::Good,
                Some(code) if code == i32::from(WRONG) => End::Wrong,
                _ => {
                    End::Died(signal.map_or_else(|| status.to_string(), |n| format!("signal {n}")))
                }
            });
        }
        if speaks() {
            until = Instant::now() + limit;
        }
        if Instant::now() > until {
            let _ = child.kill();
            child.wait().map_err(client)?;
            return Ok(End::Died("hang of the host".into()));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
