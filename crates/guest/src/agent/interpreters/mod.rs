//! Interpreters: warm spares, scripts that run in them, and contexts whose variables last.

mod cell;
mod cell_end;
mod context;
mod events;
mod pool;
mod script;
mod spawn;
