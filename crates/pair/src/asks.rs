//! Asks: what the secondary asks the primary while it arbitrates, one thing at a time.
//!
//! Each question has a number, which its answer repeats. An answer that comes when nobody waits for it any more is none to the
//! next question.
//!
//! Not covered: a primary that is there and never answers: after [`ANSWER`] the program stops.

use std::sync::mpsc::Receiver as Inbox;
use std::time::{Duration, Instant};

use crate::link::{Ask, Tell};

/// A disk that errs may answer late: a drive tries again for tens of seconds by itself.
pub(crate) const ANSWER: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(5);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Silence {
    /// The primary is lost.
    Lost,
    /// It is there, and has not answered in time.
    Late,
}

#[derive(Debug)]
pub(crate) struct Asks {
    tells: Inbox<(u64, Tell)>,
    newest: u64,
}

impl Asks {
    pub(crate) fn new(tells: Inbox<(u64, Tell)>) -> Self {
        Self { tells, newest: 0 }
    }

    /// Sends a question on; whoever waits for its answer calls [`Asks::answer`].
    pub(crate) fn ask(
        &mut self,
        ask: &Ask,
        send: impl FnOnce(&(u64, &Ask)) -> std::io::Result<()>,
    ) -> Result<(), Silence> {
        self.newest += 1;
        send(&(self.newest, ask)).map_err(|_| Silence::Lost)
    }

    /// The answer to the newest question.
    pub(crate) fn answer(
        &mut self,
        limit: Duration,
        is_lost: impl Fn() -> bool,
    ) -> Result<Tell, Silence> {
        let deadline = Instant::now() + limit;
        loop {
            match self.tells.recv_timeout(LOOK) {
                Ok((number, tell)) if number == self.newest => return Ok(tell),
                Ok(_) => {}
                Err(_) if is_lost() => return Err(Silence::Lost),
                Err(_) if Instant::now() > deadline => return Err(Silence::Late),
                Err(_) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_that_comes_late_is_none_to_the_next_question() {
        let (told, tells) = std::sync::mpsc::channel();
        let mut asks = Asks::new(tells);
        let here = || false;
        assert!(asks.ask(&Ask::Hold, |_| Ok(())).is_ok());
        assert!(matches!(
            asks.answer(Duration::ZERO, here),
            Err(Silence::Late)
        ));
        assert!(asks.ask(&Ask::Hold, |_| Ok(())).is_ok());
        told.send((1, Tell::Held(7))).expect("it is heard");
        assert!(matches!(
            asks.answer(Duration::ZERO, here),
            Err(Silence::Late)
        ));
        told.send((2, Tell::Held(9))).expect("it is heard");
        let tell = asks.answer(Duration::ZERO, here);
        assert!(matches!(tell, Ok(Tell::Held(9))), "{tell:?}");
        assert!(matches!(asks.answer(ANSWER, || true), Err(Silence::Lost)));
        let lost = asks.ask(&Ask::Release, |_| Err(std::io::Error::other("closed")));
        assert_eq!(lost, Err(Silence::Lost));
    }
}
