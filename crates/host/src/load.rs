//! Components from a folder of images: NAME.cwasm, NAME.wit and NAME.recover.toml.

use std::path::{Path, PathBuf};

use steadfast_restart::{Component, Policy, Process};

use crate::told::Told;

/// The folder of the components that come with this command, or the one that is asked for.
pub(crate) fn folder(asked: Option<&Path>) -> Result<PathBuf, Told> {
    if let Some(asked) = asked {
        return Ok(asked.into());
    }
    let own = std::env::current_exe()
        .map_err(|error| Told::setup(anyhow::Error::new(error), "a mounted /proc"))?;
    let beside = own.with_file_name("components");
    if beside.is_dir() {
        return Ok(beside);
    }
    Ok(own.with_file_name("../lib/steadfast/components"))
}

/// This program as the one that runs a component. The file may have been replaced meanwhile; the link leads to what runs.
pub(crate) fn own_process() -> Process {
    Process {
        program: "/proc/self/exe".into(),
        args: vec!["component".into()],
    }
}

/// A thread's room for a call that leads through so many components: wasmtime gives each of them 512 KiB, and our own frames lie between.
pub(crate) fn stack(components: usize) -> usize {
    (components + 2) << 20
}

/// The component of that name.
pub(crate) fn component(folder: &Path, name: &str, policy: Policy) -> Result<Component, Told> {
    let component = Component::beside(&folder.join(format!("{name}.cwasm")))?;
    Ok(Component {
        policy,
        ..component
    })
}
