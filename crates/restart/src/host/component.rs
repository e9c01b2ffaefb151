//! What a component is made from, and where its text goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::edge::Edge;
use crate::engine::LoadError;
use crate::model::Model;
use crate::process::Process;
use crate::value::Value;
use crate::words::Policy;

/// What a component is made from.
#[derive(Clone)]
pub struct Component {
    pub name: String,
    /// The compiled image.
    pub image: PathBuf,
    pub model: Model,
    /// A function of the world that is called once, before the image of the memory is taken.
    pub init: Option<String>,
    pub memory_bytes: usize,
    /// CPU time of a call; [`Duration::MAX`] for no limit.
    pub call_limit: Duration,
    pub policy: Policy,
    /// Components that it may call.
    pub uses: Vec<Edge>,
    /// Functions of the program that the host is a part of, by `interface#name`: for interfaces without objects that no component exports.
    pub answers: BTreeMap<String, Answer>,
    /// Where it prints, if it imports [`CONSOLE`].
    pub console: Option<Console>,
    /// Runs it in a process of its own.
    pub process: Option<Process>,
}

impl Component {
    /// The component of an image, with the WIT and the sidecar file of that name beside it, and defaults for the rest: no `init`, 64 MiB, 50 ms
    /// of CPU time a call, calls to nobody, nowhere to print, in the host's own process.
    ///
    /// # Errors
    /// When a file is missing, or the two do not say how objects come back.
    pub fn beside(image: &Path) -> Result<Self, LoadError> {
        let read = |ending: &str| {
            let path = image.with_extension(ending);
            std::fs::read_to_string(&path).map_err(|error| LoadError::Beside {
                path,
                found: error.to_string(),
            })
        };
        let name = image.file_stem().unwrap_or_default().to_string_lossy();
        let model = Model::generate(&read("wit")?, &read("recover.toml")?);
        let model = model.map_err(|source| LoadError::Model {
            component: name.clone().into_owned(),
            source,
        })?;
        Ok(Self {
            name: name.into_owned(),
            image: image.into(),
            ..Self::of(model)
        })
    }

    /// The same defaults, without name and image.
    #[must_use]
    pub fn of(model: Model) -> Self {
        Self {
            name: String::new(),
            image: PathBuf::new(),
            model,
            init: None,
            memory_bytes: 64 << 20,
            call_limit: Duration::from_millis(50),
            policy: Policy::default(),
            uses: Vec::new(),
            answers: BTreeMap::new(),
            console: None,
            process: None,
        }
    }
}

impl std::fmt::Debug for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Component")
            .field("name", &self.name)
            .field("image", &self.image)
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// A function of the program. What goes wrong in it is told by a result that its WIT has. It is called once for each question: a call that is
/// repeated after a failure, and the second of two bodies, get the same answer.
pub type Answer = Arc<dyn Fn(&[Value]) -> Option<Value> + Send + Sync>;

/// Where a component's text goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Out,
    Err,
}

/// Gets each text that a component prints, once.
pub type Console = Arc<dyn Fn(Stream, &str) + Send + Sync>;

/// The interface by which a component prints: `print` and `print-error`, both `func(text: string)`.
pub const CONSOLE: &str = "steadfast:host/console@0.1.0";

/// The interface by which a component says that an assertion of its own failed, which is a failure of the component:
/// `failed: func(text: string)`. Cheaper than a trap, since no signal is involved.
pub const ASSERTION: &str = "steadfast:host/assertion@0.1.0";
