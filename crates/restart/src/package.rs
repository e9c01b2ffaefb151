//! From a core module to a component: what `wit-component` does, in one call.

use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// Why a module does not become a component.
#[derive(Debug, thiserror::Error)]
#[error("{module} does not become a component: {found}")]
pub struct PackageError {
    pub module: String,
    pub found: String,
}

/// Whether these bytes are a component already: its header has layer 1 where a core module has 0.
#[must_use]
pub fn is_component(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\0asm") && bytes.get(6) == Some(&1)
}

/// Makes a component of a core module whose exports follow the canonical ABI for the WIT's world.
///
/// # Errors
/// When exports are missing or have other types than the WIT says.
pub fn componentize(module: &Path, bytes: &[u8], wit: &str) -> Result<Vec<u8>, PackageError> {
    let fail = |found: String| PackageError {
        module: module.display().to_string(),
        found,
    };
    let mut resolve = Resolve::default();
    let package = resolve
        .push_str("component.wit", wit)
        .map_err(|error| fail(format!("{error:#}")))?;
    let world = resolve
        .select_world(&[package], None)
        .map_err(|error| fail(format!("{error:#}")))?;
    let mut bytes = bytes.to_vec();
    embed_component_metadata(&mut bytes, &resolve, world, StringEncoding::UTF8)
        .map_err(|error| fail(format!("{error:#}")))?;
    let mut encoder = ComponentEncoder::default()
        .module(&bytes)
        .map_err(|error| fail(format!("{error:#}")))?;
    encoder.encode().map_err(|error| fail(format!("{error:#}")))
}
