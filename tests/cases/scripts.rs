//! Executable text files for programs.rs: the kernel starts their interpreter, or says that it cannot.

pub(crate) struct Script {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    /// How it ends bare.
    pub(crate) end: &'static str,
}

pub(crate) const SCRIPTS: &[Script] = &[
    Script {
        name: "sh",
        text: include_str!("scripts/sh"),
        end: "status 0",
    },
    Script {
        name: "sh_builtins",
        text: include_str!("scripts/sh_builtins"),
        end: "status 4",
    },
    Script {
        name: "perl_flags",
        text: include_str!("scripts/perl_flags"),
        end: "status 6",
    },
    Script {
        name: "python",
        text: include_str!("scripts/python"),
        end: "status 0",
    },
    Script {
        name: "env_perl",
        text: include_str!("scripts/env_perl"),
        end: "status 5",
    },
    Script {
        name: "sh_exec",
        text: include_str!("scripts/sh_exec"),
        end: "status 0",
    },
    Script {
        name: "dash_pipes",
        text: include_str!("scripts/dash_pipes"),
        end: "status 0",
    },
    Script {
        name: "dash_jobs",
        text: include_str!("scripts/dash_jobs"),
        end: "status 0",
    },
    Script {
        name: "dash_traps",
        text: include_str!("scripts/dash_traps"),
        end: "status 6",
    },
];
