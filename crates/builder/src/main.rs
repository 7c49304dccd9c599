//! Runs one job of a build inside the build's machine, as root. It needs nothing of the image: neither a shell nor tar.
//!
//! A build sends this program before each job that needs it; the program removes its own file when it starts.

mod archive;
mod finish;
mod owner;
mod pack;
mod place;
mod rehearse;
mod root;
mod run;
mod sources;

use std::process::ExitCode;

use sandling_builder::Job;

/// What went wrong, as one sentence for the build's log.
type Failure = String;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_default();
    if let Ok(own) = std::env::current_exe() {
        // Best effort: the file is in memory and small.
        let _ = std::fs::remove_file(own);
    }
    let done = match serde_json::from_str(&argument) {
        Ok(job) => perform(job),
        Err(error) => Err(format!("this program runs one job of a build: {error}")),
    };
    match done {
        Ok(code) => code,
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::FAILURE
        }
    }
}

fn perform(job: Job) -> Result<ExitCode, Failure> {
    match job {
        Job::Run(run) => return run::run(&run),
        Job::Rehearse(run) => return rehearse::rehearse(&run),
        Job::Pack { sources, file } => {
            root::enter()?;
            pack::pack(&sources, &file)?;
        }
        Job::Adopt { file, name, sha256, place } => {
            root::enter()?;
            place::adopt(&file, &name, sha256.as_deref(), &place)?;
        }
        Job::Place(place) => {
            root::enter()?;
            place::place(&place, std::io::stdin().lock())?;
        }
        Job::Copy { source, place } => {
            root::enter()?;
            place::copy(&source, &place, std::io::stdin().lock())?;
        }
        Job::Finish => {
            root::enter()?;
            finish::finish()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
