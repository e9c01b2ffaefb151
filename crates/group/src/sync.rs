//! What threads share, by this name: a test puts in its place what it can order as it likes (tests/queues.rs).

pub(crate) use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};

/// The sending end of a channel into a task.
pub(crate) use tokio::sync::mpsc::UnboundedSender as Out;
