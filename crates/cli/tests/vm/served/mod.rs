//! Every command against a real `sandling serve`.

mod access;
mod audit;
mod cp;
mod cut_off;
mod exec;
mod first_hour;
mod idle;
mod metrics;
mod network;
mod past;
mod proxy;
mod restart;
mod run;
mod sandboxes;
mod server;
mod shell;
mod templates;
mod terminal;
