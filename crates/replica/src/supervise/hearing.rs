//! Hearing: what a group is told, by threads that wait for children, for signals, and at the front.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steadfast_contract::plan::Plan;
use steadfast_sys::{child, procfs, signals};

use super::tree::{Post, Tree};
use crate::front::Front;
use crate::group::Group;

/// News from the helper threads.
#[derive(Debug)]
pub(crate) enum News {
    Child(i32, child::Change, child::Usage),
    Signal(signals::Taken),
    /// This signal came when the leader was dead, or about to be.
    Late(signals::Taken),
    /// This leader has ended; its parent knows how.
    Ended(i32),
    /// A child that was about to become another program does not (tree.rs).
    Stay(Sender<()>),
}

/// A thread that has seen the stop of a traced process looks again after this: its tracer has taken it by then.
const TRACER_TAKES: Duration = Duration::from_micros(100);
/// The same for one that has no child at the moment, while the tree has groups.
const NO_CHILD: Duration = Duration::from_millis(5);

/// What a group hears: changes of its processes, and, the first group, signals of this process. These are taken from
/// the start by a thread that is never replaced: an attempt to start that fails loses none.
#[derive(Debug)]
pub(crate) struct Hearing {
    /// Signals that were blocked before.
    pub(crate) mask: u64,
    post: Post,
    pub(super) news: Receiver<News>,
    pub(crate) tree: Arc<Tree>,
    /// The process that the caller waits for, where that is not this one.
    pub(crate) front: Option<Arc<Front>>,
}

impl Hearing {
    pub(crate) fn start(plan: &Plan, front: Option<Front>) -> Self {
        let blocked = signals::block_all();
        let mask = front.as_ref().map_or(blocked, Front::mask);
        child::adopt_orphans();
        let (tell, news) = channel();
        let post = Post {
            tell,
            bell: Arc::default(),
        };
        let tree = Tree::new(plan);
        tree.set_first(post.clone());
        Self {
            mask,
            post,
            news,
            tree,
            front: front.map(Arc::new),
        }
    }

    pub(crate) fn of(mask: u64, post: Post, news: Receiver<News>, tree: Arc<Tree>) -> Self {
        Self {
            mask,
            post,
            news,
            tree,
            front: None,
        }
    }

    /// Its number.
    pub(super) fn front(&self) -> Option<i32> {
        self.front.as_ref().map(|front| front.pid())
    }

    pub(crate) fn post(&self) -> &Post {
        &self.post
    }

    pub(crate) fn next(&self, limit: Duration) -> Result<News, std::sync::mpsc::RecvTimeoutError> {
        self.news.recv_timeout(limit)
    }

    /// From here on changes of this process are told here.
    pub(crate) fn claim(&self, pid: i32) {
        self.tree.claim(pid, &self.post);
    }

    /// Begins to wait for the children of this process, until there are none.
    pub(super) fn attend(&self) -> std::io::Result<()> {
        let tree = Arc::clone(&self.tree);
        let wait = move || loop {
            match child::wait_any(|pid| tree.accounts.look(pid)) {
                Some((pid, change, usage)) => {
                    tree.deliver(pid, change, usage);
                    if change == child::Change::Traced {
                        std::thread::sleep(TRACER_TAKES);
                    }
                }
                // A leader that is becoming another program can for a moment count as nobody's child.
                None => std::thread::sleep(NO_CHILD),
            }
        };
        std::thread::Builder::new().spawn(wait).map(drop)
    }

    /// Rings this group from now on; whether it is the first.
    pub(crate) fn ring(&self, group: &Arc<Group>) -> bool {
        let before = self
            .post
            .bell
            .lock()
            .expect("no panic under it")
            .replace(Arc::clone(group));
        self.tree.says_who_is_renumbered(group);
        before.is_none()
    }

    /// Begins to take signals, and rings this group.
    pub(super) fn listen(&self, group: &Arc<Group>) -> std::io::Result<()> {
        if !self.ring(group) {
            return Ok(());
        }
        if let Some(front) = self.front.clone() {
            let post = self.post.clone();
            let hear = move || {
                while let Some(taken) = front.next() {
                    post.send(News::Signal(taken));
                }
            };
            std::thread::Builder::new().spawn(hear).map(drop)?;
        }
        let (post, front) = (self.post.clone(), self.front());
        let hear = move || loop {
            let taken = signals::next();
            // That one wakes this process, and comes from the front as well.
            if taken.signal != libc::SIGCONT || Some(taken.pid) != front {
                post.send(News::Signal(taken));
            }
        };
        std::thread::Builder::new().spawn(hear).map(drop)
    }
}

/// What the kernel has counted for each leader, read once more when it has ended and before it
/// is reaped: whether its last write happened is not known otherwise.
#[derive(Debug, Default)]
pub(crate) struct Accounts(Mutex<HashMap<i32, Account>>);

#[derive(Debug)]
struct Account {
    file: std::fs::File,
    /// Bytes written before the agent began to count.
    base: u64,
    last: Option<u64>,
    /// Signals that it had yet to take.
    pending: u64,
    /// Tells it from who has its number later, as a proxy.
    began: Option<u64>,
}

/// `wchar` of /proc/PID/io (proc_pid_io(5)).
fn bytes_written(file: &mut std::fs::File) -> Option<u64> {
    use std::io::{Read, Seek};
    let mut text = String::new();
    file.rewind().ok()?;
    file.read_to_string(&mut text).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix("wchar: ")?.parse().ok())
}

impl Accounts {
    /// Begins to count for a new leader. Opened while it lives: afterwards only its reader's
    /// rights at opening count.
    pub(crate) fn open(&self, pid: i32) {
        let account = std::fs::File::open(format!("/proc/{pid}/io"))
            .ok()
            .and_then(|mut file| {
                let base = bytes_written(&mut file)?;
                Some(Account {
                    file,
                    base,
                    last: None,
                    pending: 0,
                    began: procfs::start_time(pid),
                })
            });
        let mut all = self.0.lock().expect("no panic under it");
        match account {
            Some(account) => all.insert(pid, account),
            None => all.remove(&pid),
        };
    }

    pub(crate) fn close(&self, pid: i32) {
        self.0.lock().expect("no panic under it").remove(&pid);
    }

    /// This leader has ended, and nobody has waited for it.
    pub(super) fn look(&self, pid: i32) {
        if let Some(account) = self.0.lock().expect("no panic under it").get_mut(&pid) {
            account.last = bytes_written(&mut account.file).or(account.last);
            let pending = procfs::pending(pid);
            if procfs::start_time(pid) == account.began {
                account.pending |= pending;
            }
        }
    }

    /// Signals that the ended leader had yet to take.
    pub(crate) fn pending(&self, pid: i32) -> u64 {
        let all = self.0.lock().expect("no panic under it");
        all.get(&pid).map_or(0, |account| account.pending)
    }

    /// Bytes the ended leader had written since it began to count.
    pub(crate) fn final_count(&self, pid: i32) -> Option<u64> {
        let all = self.0.lock().expect("no panic under it");
        let account = all.get(&pid)?;
        Some(account.last? - account.base)
    }
}
