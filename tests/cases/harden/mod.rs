//! Hardened programs: `steadfast cc` builds what plain clang builds, and stops what a fault would let out.
//!
//! cc/tests/*.c are the guests. Each is built plain first (the same source with STEADFAST_PLAIN); what that prints is
//! what the hardened build must print, at every level of optimisation and in both ways of linking.
//!
//! Invariants
//!  1. A clean run says nothing on standard error and ends as the plain one.
//!  2. A struck run either ends as the plain one (the fault was masked), or is stopped with status 122 and a name, and
//!     what it printed before is the beginning of what the plain one prints.
//!
//! Not covered: flips of registers and addresses drawn at random (make campaign).

mod compile;
mod cores;
mod guests;
mod messages;
mod policy;
mod projects;
mod random;
mod refuse;
mod strikes;
mod verdicts;
mod waits;

pub(crate) use compile::{WAYS, build, compiler, ended, own_program, program, run, source};
pub(crate) use guests::GUESTS;
pub(crate) use random::random_source;
pub(crate) use refuse::Refused;
pub(crate) use strikes::{STRIKES, Strike};

use crate::trial::Trial;
use crate::{between, csmith, late, later, levels, link, pass, sanitize, service, state};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![Trial::test("harden::http", service::http)];
    for part in [
        guests::trials,
        strikes::trials,
        waits::trials,
        messages::trials,
        cores::trials,
        random::trials,
        refuse::trials,
        policy::trials,
        projects::trials,
        verdicts::trials,
        csmith::trials,
        late::trials,
        later::trials,
        levels::trials,
        link::trials,
        pass::trials,
        state::trials,
        between::trials,
        sanitize::trials,
    ] {
        trials.extend(part());
    }
    trials
}
