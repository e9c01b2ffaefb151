//! Say: results on standard output. One that cannot be written is told when the command ends, which is no success then.

use std::fmt::Arguments;
use std::io::{ErrorKind, Write as _};
use std::sync::OnceLock;

use steadfast_contract::exit::Own;

static LOST: OnceLock<std::io::Error> = OnceLock::new();

/// What `println!` does, but for the panic where it cannot be written.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::say::result(format_args!("{}\n", format_args!($($text)*)))
    };
}
pub(crate) use say;

/// All of it, to the end.
pub(crate) fn result(text: Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    if let Err(why) = out.write_fmt(text).and_then(|()| out.flush()) {
        // The first reason is the one.
        let _ = LOST.set(why);
    }
}

/// Nobody has the results.
pub(crate) fn is_lost() -> bool {
    LOST.get().is_some()
}

/// How the command ends, which would have ended so. Whoever has closed a pipe has seen what it wanted.
pub(crate) fn end(code: u8) -> u8 {
    let lost = LOST.get().filter(|why| why.kind() != ErrorKind::BrokenPipe);
    let Some(why) = lost else {
        return code;
    };
    eprintln!(
        "steadfast pair: standard output has to take the result, and it could not be written to the end\n  cause: {why}"
    );
    if code == 0 { Own::Setup.code() } else { code }
}
