//! The launcher as a separate binary, for callers whose own binary cannot be the launcher (this crate's tests).

use std::process::ExitCode;

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == sandling_vmm::jail::ARGUMENT) {
        return sandling_vmm::jail::main();
    }
    eprintln!("sandling-jail is started by sandling, not by hand");
    ExitCode::from(2)
}
