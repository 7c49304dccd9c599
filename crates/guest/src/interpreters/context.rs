//! Contexts: live interpreters whose variables last from cell to cell.

use std::collections::BTreeMap;

use sandling_protocol::{ContextSpec, Failure, StreamId};

use super::cell::Cell;
use crate::exec::Pipes;
use crate::exec::output::Log;
use crate::failure::not_found;
use crate::sys::poller::{Poller, Source};

/// Keys increase, so their order is the order of creation.
#[derive(Default)]
pub struct Contexts {
    pub all: BTreeMap<u64, Context>,
    pub last_key: u64,
}

pub struct Context {
    pub key: u64,
    pub spec: ContextSpec,
    /// `None` after an interpreter has died between cells; the next cell starts a new one.
    pub interpreter: Option<u64>,
    pub pipes: Pipes,
    pub cells: u64,
    pub restarts: u32,
    pub cell: Option<Cell>,
    /// Output that was printed between cells; the next cell shows it.
    pub between: Log,
    /// The stream that waits for the interpreter to be ready.
    pub waiting: Option<StreamId>,
    /// It has had a working interpreter. Before that, a failure removes the context.
    pub made: bool,
    /// The working directory its interpreter was started in.
    pub cwd: String,
}

impl Context {
    /// Waits for its output from now on.
    pub fn watch(&self, poller: &Poller) -> std::io::Result<()> {
        self.pipes.watch(poller, [Source::ContextStdout(self.key), Source::ContextStderr(self.key)])
    }
}

impl Contexts {
    pub fn get(&mut self, key: u64) -> Option<&mut Context> {
        self.all.get_mut(&key)
    }

    pub fn find(&mut self, id: &str) -> Result<&mut Context, Failure> {
        self.all.values_mut().find(|context| context.spec.id == id).ok_or_else(|| not_found("context", id))
    }

    /// The host has closed a stream that waited.
    pub fn forget_waiting(&mut self, stream: StreamId) {
        for context in self.all.values_mut().filter(|context| context.waiting == Some(stream)) {
            context.waiting = None;
        }
    }
}
