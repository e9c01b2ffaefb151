//! Sets of logical CPUs in the kernel's list form: `0,2-3`.
//!
//! Invariants
//!  1. A set is kept sorted, so it prints in one way only, and that way parses back.
//!  2. A set that came from text is not empty.
//!
//! Not covered: whether such a CPU exists or may be used; the machine decides that.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use crate::ids::CoreId;
use crate::text;

/// A set of logical CPUs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct CpuSet(BTreeSet<u32>);

/// The kernel's own ceiling for x86-64 (`CONFIG_NR_CPUS` with `MAXSMP`): a longer list is a slip.
const CPUS_MAX: u32 = 8192;

impl CpuSet {
    /// CPUs in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = CoreId> + '_ {
        self.0.iter().copied().map(CoreId)
    }

    /// Whether `core` is in the set.
    #[must_use]
    pub fn contains(&self, core: CoreId) -> bool {
        self.0.contains(&core.0)
    }

    /// Number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<CoreId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CoreId>>(cores: I) -> Self {
        Self(cores.into_iter().map(|core| core.0).collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.iter().copied().peekable();
        let mut separator = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while rest.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            write!(f, "{separator}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = String;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        let cpu = |s: &str| -> Result<u32, String> {
            text::number(s)
                .and_then(|n| u32::try_from(n).ok())
                .filter(|&n| n < CPUS_MAX)
                .ok_or_else(|| {
                    format!("a CPU list is numbers below {CPUS_MAX} such as 0,2-3, found {s:?}")
                })
        };
        let mut set = BTreeSet::new();
        for part in list.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (cpu(first)?, cpu(last)?),
                None => (cpu(part)?, cpu(part)?),
            };
            if first > last {
                return Err(format!("a CPU range ascends, found {part:?}"));
            }
            for n in first..=last {
                if !set.insert(n) {
                    return Err(format!(
                        "a CPU list names each CPU once, found {n} again in {part:?}"
                    ));
                }
            }
        }
        Ok(Self(set))
    }
}

string_in_json!(
    CpuSet,
    "list of logical CPUs, as 0,2-3",
    "^([0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?$"
);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_the_kernels_form() {
        let set: CpuSet = "0,2-4".parse().expect("a list");
        assert_eq!(set.iter().map(|c| c.0).collect::<Vec<_>>(), [0, 2, 3, 4]);
        for bad in [
            "", ",", "1,", "3-1", "0-", "a", "1,1", "0-2,1", "8192", "-1",
        ] {
            assert!(bad.parse::<CpuSet>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn prints_what_it_parses(cpus in proptest::collection::btree_set(0_u32..300, 1..40)) {
            let set: CpuSet = cpus.into_iter().map(CoreId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>(), Ok(set));
        }
    }
}
