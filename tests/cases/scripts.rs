//! Executable text files for programs.rs: the kernel starts their interpreter, or says that it cannot.

use crate::check::Expect;

/// Name, text, what is expected of it, and how it ends bare.
pub(crate) const SCRIPTS: &[(&str, &str, Expect, &str)] = &[
    (
        "sh",
        "#!/bin/sh\nfor a; do echo \"$0 $a\" | while read x; do :; done; done\n",
        Expect::Supported,
        "status 0",
    ),
    (
        "sh_builtins",
        "#!/bin/sh\nfor a; do echo \"${0##*/} $a\"; done\nexit 4\n",
        Expect::Supported,
        "status 4",
    ),
    (
        "perl_flags",
        "#!/usr/bin/perl -w\nprint \"$0\" =~ s{.*/}{}r, \" @ARGV\\n\"; exit 6;\n",
        Expect::Supported,
        "status 6",
    ),
    (
        "python",
        "#!/usr/bin/python3 -IS\nimport sys\nprint(sys.argv[1:])\n",
        Expect::Supported,
        "status 0",
    ),
    (
        "env_perl",
        "#!/usr/bin/env perl\nprint \"$0\" =~ s{.*/}{}r, \" @ARGV\\n\"; exit 5;\n",
        Expect::Supported,
        "status 5",
    ),
    (
        "sh_exec",
        "#!/bin/sh\nexec nice -n 3 env -i A=1 sort \"$0\"\n",
        Expect::Supported,
        "status 0",
    ),
    (
        "dash_pipes",
        "#!/bin/dash\nprintf 'c\\nb\\na\\n' | sort | { read x; echo \"first $x\"; cat; } | tr a-z A-Z\n(exit 3) | true; echo $?\n\
        true | (exit 4); echo $?\nx=$(echo sub; exit 5); echo \"$x $?\"\ncat <<E | cat\nhere $x `echo and there`\nE\n\
        { echo out; echo err >&2; } 2>&1 >/dev/null | sed s/err/seen/\nfor i in 1 2 3; do (exit $i) || echo $?; done\n",
        Expect::Supported,
        "status 0",
    ),
    (
        "dash_jobs",
        "#!/bin/dash\nsleep 0.2 & a=$!\n(exit 7) & b=$!\nwait $b; echo $?\nwait $a; echo $?\nsleep 30 & kill $!; wait $! 2>/dev/null; echo $?\n\
        sleep 30 & kill -STOP $!; kill -CONT $!; kill -HUP $!; wait $! 2>/dev/null; echo $?\n(sleep 0.1; exit 3) & (exit 4) & wait; echo $?\n\
        set -m; sleep 0.1 & wait $!; echo $?; jobs\nsetsid sh -c 'exit 5'; echo $?\nwait 1; echo $?\n",
        Expect::Supported,
        "status 0",
    ),
    (
        "dash_traps",
        "#!/bin/dash\ntrap 'echo usr1' USR1\ntrap 'echo exit $?' EXIT\nkill -USR1 $$\n(trap - EXIT; kill -USR1 $$)\nsh -c 'kill -USR1 $PPID'; echo after\n\
        trap 'echo child' CHLD; sh -c 'exit 2'; echo $?; trap - CHLD\n(trap '' TERM; sh -c 'kill -TERM $$; echo ignored')\n\
        sh -c 'kill -KILL $$'; echo $?\nexec 3>&1; (echo through >&3) | cat; exec 3>&-\nexit 6\n",
        Expect::Supported,
        "status 6",
    ),
];
