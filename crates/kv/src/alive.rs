//! A replica that is half dead ends, so that a fresh process takes its place.
//!
//! Most of a replica are tasks of one thread. A panic would end one of them, and leave a process that still says that it is alive but has
//! no way to one of the others any more, for example. And a thread that stands still keeps no other one from answering nothing.
//!
//! Invariants
//!  1. A panic ends the process, wherever it is, but in what a client has sent: there it ends the connection.
//!  2. The watching thread counts only time in which it runs itself: a process that was stopped for a minute has not stood still.
//!
//! Not covered: a thread that goes round and round and tells its beat as it does.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use steadfast_contract::exit::Own;

thread_local! {
    /// Whether this thread does what a client has asked for.
    static FOR_CLIENT: Cell<bool> = const { Cell::new(false) };
}

/// Has a panic end the process.
pub(crate) fn end_on_panic() {
    let tell = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        tell(panic);
        if !FOR_CLIENT.get() {
            crate::say::exit(Own::Mismatch);
        }
    }));
}

/// A task that may end by a panic alone.
pub(crate) async fn for_client<T>(task: impl Future<Output = T>) -> T {
    let mut task = pin!(task);
    poll_fn(|context| {
        let _outside = Outside(FOR_CLIENT.replace(true));
        task.as_mut().poll(context)
    })
    .await
}

/// What held before, whatever ends a turn.
struct Outside(bool);

impl Drop for Outside {
    fn drop(&mut self) {
        FOR_CLIENT.set(self.0);
    }
}

/// Told by a thread in each of its turns.
#[derive(Debug, Clone, Default)]
pub(crate) struct Beat(Arc<AtomicU64>);

impl Beat {
    pub(crate) fn tell(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `end` from a thread of its own as soon as nothing was told for so long.
    pub(crate) fn watch(
        &self,
        limit: Duration,
        end: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        /// In each limit.
        const LOOKS: u32 = 20;
        let beat = self.clone();
        std::thread::Builder::new()
            .name("beat".to_owned())
            .spawn(move || {
                let (mut last, mut stood) = (0, 0);
                // Before the first beat there is no turn that could be late.
                while stood < LOOKS {
                    std::thread::sleep(limit / LOOKS);
                    let now = beat.0.load(Ordering::Relaxed);
                    stood = if now == last && now > 0 { stood + 1 } else { 0 };
                    last = now;
                }
                end();
            })
            .map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    const LIMIT: Duration = Duration::from_millis(400);

    #[test]
    fn a_thread_that_tells_nothing_any_more_is_noticed_and_one_that_goes_on_is_not() {
        let (ended, end) = channel();
        let beat = Beat::default();
        beat.watch(LIMIT, move || ended.send(()).unwrap()).unwrap();
        for _ in 0..40 {
            beat.tell();
            std::thread::sleep(LIMIT / 20);
        }
        assert!(end.try_recv().is_err());
        end.recv_timeout(LIMIT * 50).unwrap();
    }

    #[test]
    fn who_has_not_begun_is_not_late() {
        let (ended, end) = channel();
        Beat::default()
            .watch(LIMIT / 4, move || ended.send(()).unwrap())
            .unwrap();
        assert!(end.recv_timeout(LIMIT).is_err());
    }

    /// Runs once more as a process of its own, which ends or does not.
    #[test]
    fn a_panic_ends_the_process_and_one_over_what_a_client_has_sent_does_not() {
        const WHERE: &str = "STEADFAST_TEST_PANICS_FOR";
        const LIVES: i32 = 7;
        if let Ok(whom) = std::env::var(WHERE) {
            end_on_panic();
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.build().unwrap();
            let panics = async { panic!("planted") };
            let task = runtime.block_on(async {
                match whom.as_str() {
                    "client" => tokio::spawn(for_client(panics)).await,
                    _ => tokio::spawn(panics).await,
                }
            });
            assert!(task.is_err());
            std::process::exit(LIVES);
        }
        for (whom, status) in [("client", LIVES), ("itself", Own::Mismatch.code().into())] {
            let this = "alive::tests::a_panic_ends_the_process_and_one_over_what_a_client_has_sent_does_not";
            let said = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", this, "--nocapture"])
                .env(WHERE, whom)
                .output()
                .unwrap();
            assert_eq!(said.status.code(), Some(status), "{whom}: {said:?}");
            let told = String::from_utf8_lossy(&said.stderr);
            assert!(told.contains("planted"), "{told}");
        }
    }

    #[tokio::test]
    async fn a_client_s_turn_is_told_from_others() {
        assert!(!FOR_CLIENT.get());
        let inside = for_client(async {
            tokio::task::yield_now().await;
            FOR_CLIENT.get()
        });
        assert!(inside.await);
        assert!(!FOR_CLIENT.get());
        let task = tokio::spawn(for_client(async { panic!("planted") }));
        assert!(task.await.unwrap_err().is_panic());
        assert!(!FOR_CLIENT.get());
    }
}
