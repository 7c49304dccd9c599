//! `sandling completions`.

use clap::CommandFactory;
use clap_complete::Shell;

use crate::options::Options;

pub fn completions(shell: Shell) {
    clap_complete::generate(shell, &mut Options::command(), "sandling", &mut std::io::stdout());
}
