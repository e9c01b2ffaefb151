//! A row of the table: one guest, and the ways to run it.

use super::*;

/// Every size of group that a guest meets.
const EVERY: &[u8] = &[1, 2, 3, 5];

/// One way to run one guest.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) source: &'static str,
    pub(super) label: &'static str,
    pub(super) args: Vec<String>,
    pub(super) variants: &'static [Variant],
    pub(super) expect: Expect,
    pub(super) bare: &'static str,
    pub(super) stdin: Stdin,
    pub(super) stdout: Stdout,
    pub(super) replicas: &'static [u8],
    /// Its place in the table, by which sizes of groups go round.
    pub(super) turn: usize,
    /// A library to build and copy into the working directory.
    pub(super) library: Option<&'static str>,
}

pub(super) fn row(source: &'static str) -> Row {
    Row {
        source,
        label: "",
        args: Vec::new(),
        variants: &[Variant::Dynamic],
        expect: Expect::Supported,
        bare: "status 0",
        stdin: Stdin::Null,
        stdout: Stdout::Pipe,
        replicas: EVERY,
        turn: 0,
        library: None,
    }
}

impl Row {
    pub(super) const fn shapes(mut self, variants: &'static [Variant]) -> Self {
        self.variants = variants;
        self
    }

    pub(super) fn args(mut self, label: &'static str, args: &[&str]) -> Self {
        self.label = label;
        self.args = args.iter().map(|&a| a.to_owned()).collect();
        self
    }

    pub(super) const fn expect(mut self, expect: Expect) -> Self {
        self.expect = expect;
        self
    }

    pub(super) const fn ends(mut self, bare: &'static str) -> Self {
        self.bare = bare;
        self
    }

    pub(super) fn stdin(mut self, stdin: Stdin) -> Self {
        self.stdin = stdin;
        self
    }

    pub(super) const fn stdout(mut self, stdout: Stdout) -> Self {
        self.stdout = stdout;
        self
    }

    pub(super) const fn replicas(mut self, replicas: &'static [u8]) -> Self {
        self.replicas = replicas;
        self
    }

    pub(super) const fn library(mut self, library: &'static str) -> Self {
        self.library = Some(library);
        self
    }

    /// The name of the case for one shape.
    pub(crate) fn name(&self, variant: Variant) -> String {
        let stem = self.source.split('.').next().unwrap_or(self.source);
        let label = if self.label.is_empty() {
            String::new()
        } else {
            format!("::{}", self.label)
        };
        format!("guests::{stem}{label}::{}", variant.word())
    }

    /// The case for one shape; builds the guest.
    pub(crate) fn case(&self, variant: Variant) -> Result<Case, String> {
        let mut case = Case::new(self.name(variant), build::guest(self.source, variant)?);
        case.invocation.args.clone_from(&self.args);
        case.invocation.stdin = self.stdin.clone();
        case.invocation.stdout = self.stdout;
        case.expect = self.expect;
        self.bare.clone_into(&mut case.bare);
        case.replicas = self.sizes(variant, all());
        if let Some(library) = self.library {
            case.inputs.push(build::guest(library, variant)?);
        }
        Ok(case)
    }

    /// The sizes of group for one shape. Where a row names none and not all are wanted, they go round: each guest meets 2, 3, and 1 or 5;
    /// the same guest with other arguments 2 and one more; another shape 2 or 3.
    fn sizes(&self, variant: Variant, all: bool) -> Vec<u8> {
        let shape = self.variants.iter().position(|&one| one == variant);
        let other_shape = shape != Some(0);
        if all || self.replicas != EVERY {
            let wanted = |n: &u8| !other_shape || matches!(n, 2 | 3);
            return self.replicas.iter().copied().filter(wanted).collect();
        }
        if other_shape {
            return vec![[2, 3][(self.turn + shape.unwrap_or(0)) % 2]];
        }
        if self.label.is_empty() {
            return vec![2, 3, [1, 5][self.turn % 2]];
        }
        vec![2, [1, 3, 5][self.turn % 3]]
    }
}
