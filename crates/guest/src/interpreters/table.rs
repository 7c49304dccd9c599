//! The table of all interpreters that have a control socket.

use std::collections::HashMap;

use sandling_protocol::{Language, StreamId};

use super::control::Control;
use super::permit::Permit;
use super::pool::Pool;
use crate::cgroup::Cgroup;
use crate::environment::Variables;
use crate::exec::AgentStdio;

#[derive(Default)]
pub struct Interpreters {
    all: HashMap<u64, Interpreter>,
    pub pools: HashMap<Language, Pool>,
    last_key: u64,
}

pub struct Interpreter {
    pub key: u64,
    pub language: Language,
    pub role: Role,
    /// `None` while a zygote is forking it.
    pub pid: Option<u32>,
    pub control: Control,
    /// Only Node has one: it must not be signalled without.
    pub permit: Option<Permit>,
    /// The agent's stdio of its standard streams, until a script or a context takes them.
    pub stdio: Option<AgentStdio>,
    pub cgroup: Option<Cgroup>,
    /// The environment that it has set in advance.
    pub rehearsed: Option<Variables>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    Zygote,
    Spare,
    Script { exec: u64 },
    Context { context: u64 },
}

impl Interpreter {
    /// An interpreter that has only a control socket so far. Its key follows when it is added to the table.
    pub fn new(language: Language, role: Role, control: Control) -> Self {
        Self { key: 0, language, role, pid: None, control, permit: None, stdio: None, cgroup: None, rehearsed: None }
    }

    /// Whether it reads its control socket at all times.
    pub fn listens(&self) -> bool {
        !matches!(self.role, Role::Script { .. })
    }
}

impl Interpreters {
    pub fn next_key(&mut self) -> u64 {
        self.last_key += 1;
        self.last_key
    }

    pub fn insert(&mut self, interpreter: Interpreter) {
        self.all.insert(interpreter.key, interpreter);
    }

    pub fn get(&mut self, key: u64) -> Option<&mut Interpreter> {
        self.all.get_mut(&key)
    }

    pub fn remove(&mut self, key: u64) -> Option<Interpreter> {
        self.all.remove(&key)
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Interpreter> {
        self.all.values_mut()
    }

    /// The host has closed a stream that waited.
    pub fn forget_waiting(&mut self, stream: StreamId) {
        for pool in self.pools.values_mut() {
            pool.forget_waiting(stream);
        }
    }
}
