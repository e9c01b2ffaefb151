//! Filters of system calls (seccomp(2)): a list of calls, and what becomes of these.

/// The call is made.
pub(crate) const ALLOW: u32 = 0x7fff_0000;
/// Whoever holds the listener answers (seccomp_unotify(2)).
pub(crate) const ASK: u32 = 0x7fc0_0000;

/// The call is not made, and fails so.
pub(crate) const fn fail(errno: i32) -> u32 {
    0x0005_0000 | errno.cast_unsigned()
}

/// A filter that does this with the calls listed, that with every call of another architecture, whose numbers mean other calls, and lets
/// everything else pass.
pub(crate) fn filter(calls: &[i64], listed: u32, foreign: u32) -> Vec<libc::sock_filter> {
    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const AUDIT_X86_64: u32 = 0xc000_003e;
    let op = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut out = vec![
        op(LOAD, 0, 0, 4),
        op(EQUAL, 1, 0, AUDIT_X86_64),
        op(RETURN, 0, 0, foreign),
        op(LOAD, 0, 0, 0),
    ];
    for &nr in calls {
        out.push(op(EQUAL, 0, 1, u32::try_from(nr).unwrap_or(u32::MAX)));
        out.push(op(RETURN, 0, 0, listed));
    }
    out.push(op(RETURN, 0, 0, ALLOW));
    out
}
