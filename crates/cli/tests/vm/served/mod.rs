//! Every command against a real `sandling serve`.

mod access;
mod cp;
mod cut_off;
mod exec;
mod idle;
mod network;
mod past;
mod restart;
mod run;
mod sandboxes;
mod server;
mod shell;
