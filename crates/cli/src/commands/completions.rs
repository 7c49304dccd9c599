//! `sandling completions`.

use std::io::Write;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::options::Options;
use crate::outcome;

pub fn completions(shell: Shell) -> anyhow::Result<()> {
    // clap_complete panics if its writer fails, so the script is written to memory first.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Options::command(), "sandling", &mut script);
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(&script).and_then(|()| stdout.flush()).map_err(outcome::stdout_error)
}
