//! Components from a folder of images: NAME.cwasm, NAME.wit and NAME.recover.toml.

use std::path::Path;
use std::time::Duration;

use steadfast_restart::{Component, Model, Policy};

use crate::cli::{Told, read_text};

/// The component of that name.
pub(crate) fn component(folder: &Path, name: &str, policy: Policy) -> Result<Component, Told> {
    let file = |ending: &str| folder.join(format!("{name}.{ending}"));
    let model = Model::generate(
        &read_text(&file("wit"))?,
        &read_text(&file("recover.toml"))?,
    )?;
    Ok(Component {
        name: name.into(),
        image: file("cwasm"),
        model,
        init: None,
        memory_bytes: 64 << 20,
        call_limit: Duration::from_millis(50),
        policy,
    })
}
