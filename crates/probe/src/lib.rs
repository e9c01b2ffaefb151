//! What this kernel, CPU and user allow: probed, never assumed.
//!
//! A kernel version says little: distributions, containers, sysctls, seccomp profiles and limits
//! take features away and bring them back. So each feature is used once, the way the replica
//! engine uses it, and each cost is measured here and now.
//!
//! Invariants
//!  1. Every probe runs in a child of its own, with a deadline. A probe can crash, hang or be
//!     killed, and the tool goes on and says so.
//!  2. Nothing is left behind and nothing global is changed: no file, no process, no namespace,
//!     no sysctl, no limit of the caller.
//!  3. A gap comes with the reason, what Steadfast does instead, and how to close it.
//!
//! Not covered: whether a certain program can be protected; that depends on what it does.
//!
//! See ptrace(2), clone(2), seccomp(2), pid_namespaces(7), user_namespaces(7), prctl(2),
//! userfaultfd(2), proc(5), cgroups(7).

mod boxed;
mod components;
mod cost;
mod cpu;
mod intercept;
mod limits;
mod memory;
mod namespaces;
mod process;
mod read;

use serde::Serialize;

/// Version of the JSON form of [`Check`].
pub const SCHEMA_VERSION: u32 = 1;

/// Everything that was found out.
#[derive(Debug, Clone, Serialize)]
pub struct Check {
    /// Version of this form.
    pub v: u32,
    /// The machine.
    pub machine: Machine,
    /// Whether `steadfast run` can work at all.
    pub usable: bool,
    /// Features, in the order in which they matter.
    pub findings: Vec<Finding>,
    /// What things cost here.
    pub costs: Vec<Cost>,
}

/// The machine in a line.
#[derive(Debug, Clone, Serialize)]
pub struct Machine {
    /// Kernel release.
    pub kernel: String,
    /// Hardware architecture.
    pub architecture: String,
    /// Processor model.
    pub cpu: String,
    /// Logical CPUs that this process may use.
    pub cpus: Vec<u32>,
    /// How many physical cores they belong to.
    pub cores: usize,
    /// Effective user.
    pub uid: u32,
}

/// Whether a feature is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It was used, and did what it should.
    Works,
    /// It is not there, or only in part; there is another way that costs more or covers less.
    Slower,
    /// It is not there, and nothing takes its place.
    Missing,
}

/// One feature.
#[derive(Debug, Clone, Serialize)]
pub struct Finding {
    /// A name that stays the same across versions.
    pub name: &'static str,
    /// Whether it is there.
    pub state: State,
    /// Whether `steadfast run` cannot work without it.
    pub needed: bool,
    /// What was seen.
    pub seen: String,
    /// What Steadfast does instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instead: Option<String>,
    /// A command or an action that closes the gap.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Finding {
    fn works(name: &'static str, seen: impl Into<String>) -> Self {
        Self {
            name,
            state: State::Works,
            needed: false,
            seen: seen.into(),
            instead: None,
            fix: None,
        }
    }

    fn slower(name: &'static str, seen: impl Into<String>, instead: impl Into<String>) -> Self {
        Self {
            state: State::Slower,
            instead: Some(instead.into()),
            ..Self::works(name, seen)
        }
    }

    fn missing(name: &'static str, seen: impl Into<String>) -> Self {
        Self {
            state: State::Missing,
            ..Self::works(name, seen)
        }
    }

    fn needed(self) -> Self {
        Self {
            needed: true,
            ..self
        }
    }

    fn fix(self, fix: impl Into<String>) -> Self {
        Self {
            fix: Some(fix.into()),
            ..self
        }
    }

    fn maybe_fix(self, fix: Option<String>) -> Self {
        Self { fix, ..self }
    }
}

/// What something costs on this machine.
#[derive(Debug, Clone, Serialize)]
pub struct Cost {
    /// A name that stays the same across versions.
    pub name: &'static str,
    /// The median; nothing if it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<f64>,
    /// Unit of the value.
    pub unit: &'static str,
    /// Why it could not be measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Whether costs are measured, which takes about a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Features only.
    Skip,
    /// Features and costs.
    Costs,
}

/// What `steadfast host` needs of this machine.
#[must_use]
pub fn components() -> Vec<Finding> {
    components::findings()
}

/// Finds out what this machine allows.
#[must_use]
pub fn check(measure: Measure) -> Check {
    let mut findings = Vec::new();
    findings.extend(cpu::architecture());
    findings.push(process::kernel());
    let child = process::child();
    // Without children every other probe would only say that it had none.
    let possible = child.state == State::Works;
    findings.push(child);
    if possible {
        findings.extend(process::findings());
        findings.extend(memory::shared());
        findings.extend(namespaces::findings());
        findings.extend(intercept::findings());
        findings.extend(memory::findings());
        findings.extend(cpu::findings());
        findings.extend(limits::findings());
        findings.extend(components::findings());
    }
    let usable = findings
        .iter()
        .all(|finding| !finding.needed || finding.state != State::Missing);
    let costs = if possible && measure == Measure::Costs {
        cost::costs()
    } else {
        Vec::new()
    };
    Check {
        v: SCHEMA_VERSION,
        machine: cpu::machine(),
        usable,
        findings,
        costs,
    }
}

#[cfg(test)]
mod tests;
