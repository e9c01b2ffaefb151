//! Where a flip struck a component: in code of its own, or where the host enters it or is called by it.
//!
//! An image names its functions. Where the host enters a component its registers are still the host's, so a flip there may damage the host.

use std::path::Path;

use object::{Object as _, ObjectSymbol as _, SymbolKind};
use serde::{Deserialize, Serialize};

/// How flips in one kind of code ended.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) struck: u64,
    pub(crate) escaped: u64,
    pub(crate) wrong: u64,
}

const ENTRY: &str = "entry and return";
const EXIT: &str = "calls of the host";
const OWN: &str = "own code";

/// The functions of an image, by where they begin.
pub(super) struct Places(Vec<(u64, &'static str)>);

impl Places {
    /// None of an image that cannot be read: whoever runs it says why.
    pub(super) fn of(image: &Path) -> Self {
        let bytes = std::fs::read(image).unwrap_or_default();
        let Ok(file) = object::File::parse(&*bytes) else {
            return Self(Vec::new());
        };
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text);
        // Images count from the beginning of their text.
        let mut all: Vec<_> = functions
            .map(|symbol| (symbol.address(), kind(symbol.name().unwrap_or_default())))
            .collect();
        all.sort_unstable();
        Self(all)
    }

    /// What a line tells of a flip, if it does.
    pub(super) fn struck(&self, line: &str) -> Option<&'static str> {
        let (_, offset) = line.strip_prefix("struck ")?.split_once(' ')?;
        let offset = u64::from_str_radix(offset, 16).ok()?;
        let behind = self.0.partition_point(|(begin, _)| *begin <= offset);
        Some(behind.checked_sub(1).map_or(OWN, |place| self.0[place].1))
    }
}

fn kind(name: &str) -> &'static str {
    let of = |words: &[&str]| words.iter().any(|word| name.contains(word));
    if of(&["array_to_wasm", "array-call", "::Array"]) {
        ENTRY
    } else if of(&[
        "wasm_to_array",
        "wasm-call",
        "wasmtime_builtin",
        "resource_drop",
    ]) {
        EXIT
    } else {
        OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_of_the_function_that_begins_before_it() {
        let kinds = [
            (0, kind("wasm[0]::function[9]")),
            (0x100, kind("wasm[0]::array_to_wasm_trampoline[2]")),
            (
                0x180,
                kind("component-trampolines[0]-wasm-call-component-resource-new[0]"),
            ),
        ];
        let places = Places(kinds.to_vec());
        for (offset, place) in [("ff", OWN), ("100", ENTRY), ("17f", ENTRY), ("4000", EXIT)] {
            assert_eq!(places.struck(&format!("struck 0c21 {offset}")), Some(place));
        }
        assert_eq!(places.struck("{}"), None);
        assert_eq!(places.struck("struck 0c21 x"), None);
        assert_eq!(Places(Vec::new()).struck("struck 0c21 4"), Some(OWN));
    }
}
