//! Why an engine, an image or a component is refused, and what would help.

use std::path::PathBuf;

use crate::model::ModelError;

/// Why an engine, an image or a component is refused.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    #[error("the signal pad is needed and its self-test failed: {found}")]
    Pad { found: String },
    #[error("{} cannot be compiled: {found}", path.display())]
    Compile { path: PathBuf, found: String },
    #[error("{} is not an image that this build of steadfast-host made: {found}", path.display())]
    Image { path: PathBuf, found: String },
    #[error("{} is needed beside the image, and cannot be read: {found}", path.display())]
    Beside { path: PathBuf, found: String },
    #[error("{component} cannot be brought back")]
    Model {
        component: String,
        source: ModelError,
    },
    #[error("{component} needs an import that the application does not provide: {found}")]
    Import { component: String, found: String },
    #[error("{component} has no function {function} of {interface}")]
    Export {
        component: String,
        interface: String,
        function: String,
    },
    #[error(
        "{component} has another {function} than its WIT says: {what} is {needed} there, {found} in the image"
    )]
    Types {
        component: String,
        function: String,
        what: String,
        needed: String,
        found: String,
    },
    #[error("{component} does not start: {found}")]
    Start { component: String, found: String },
    #[error("what the last process kept of {component} cannot be used: {found}")]
    Kept { component: String, found: String },
    #[error("{what}")]
    System {
        what: &'static str,
        #[source]
        source: std::io::Error,
    },
}

impl LoadError {
    /// What would help.
    #[must_use]
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Pad { .. } => {
                "run on x86-64 Linux without a sandbox that filters signals; or host run --no-pad (Host::new(false)), where wild faults end the process"
            }
            Self::Compile { .. } => {
                "give a WebAssembly component; a core module becomes one with `steadfast host compile --wit FILE`"
            }
            Self::Image { .. } => "compile it again: steadfast host compile COMPONENT.wasm",
            Self::Beside { .. } => {
                "NAME.wit and NAME.recover.toml in the folder of NAME.cwasm; the latter may be empty where there are no objects"
            }
            Self::Model { .. } => {
                "see the message; the sidecar file's entries are in docs/reference/host.md"
            }
            Self::Import { .. } => {
                "an [[edge]] from it to a component that exports this; one with allow must list the function"
            }
            Self::Export { .. } | Self::Types { .. } => {
                "the WIT beside the component must be the one it was built from"
            }
            Self::Start { .. } => {
                "see the message; memory_mib in app.toml raises the limit of memory"
            }
            Self::Kept { .. } => {
                "none is needed: it is forgotten, all begin empty, and old handles are stale"
            }
            Self::System { .. } => "see the cause",
        }
    }
}
