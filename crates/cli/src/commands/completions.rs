//! `sandling completions`.

use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::options::Options;

pub fn completions(shell: Shell) -> anyhow::Result<ExitCode> {
    clap_complete::generate(shell, &mut Options::command(), "sandling", &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}
