//! What a coding agent does in a day: a small project, and forty commands on it. `bench/emulation` reads the same files.

/// Makes the project. It is the same in every place, so all of them work on the same files.
pub const SETUP: &str = include_str!("setup.sh");

/// One command per line. Each can run any number of times, and works in the project's directory.
const LINES: &str = include_str!("commands.txt");

/// The commands, in the order in which they run.
pub fn commands() -> Vec<&'static str> {
    LINES.lines().collect()
}
