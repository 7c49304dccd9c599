//! Errors as failures that the host can show to the user.

use std::fmt::Display;
use std::io;

use sandling_protocol::{Failure, FailureKind};

use crate::sys::launch::LaunchError;

pub fn failure(kind: FailureKind, message: impl Into<String>) -> Failure {
    Failure { kind, message: message.into() }
}

pub fn not_found(what: &str, id: &str) -> Failure {
    failure(FailureKind::NotFound, format!("there is no {what} {id:?}"))
}

/// An I/O error about a subject that the user knows by name.
pub fn io_failure(subject: impl Display, error: &io::Error) -> Failure {
    failure(kind_of(error), format!("{subject}: {}", describe(error)))
}

pub fn launch_failure(program: &str, directory: &str, error: &LaunchError) -> Failure {
    match error {
        LaunchError::Execute(source) if source.kind() == io::ErrorKind::NotFound => {
            failure(FailureKind::NotFound, format!("{program}: command not found"))
        }
        LaunchError::Execute(source) => io_failure(program, source),
        LaunchError::Directory(source) => io_failure(format!("working directory {directory}"), source),
        LaunchError::Clone(source) if source.kind() == io::ErrorKind::WouldBlock => {
            failure(FailureKind::Busy, "too many processes: the sandbox's limit is reached")
        }
        LaunchError::Clone(source) | LaunchError::Prepare(source) | LaunchError::User(source) => {
            io_failure(error, source)
        }
    }
}

fn kind_of(error: &io::Error) -> FailureKind {
    match error.kind() {
        io::ErrorKind::NotFound => FailureKind::NotFound,
        io::ErrorKind::AlreadyExists => FailureKind::AlreadyExists,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => FailureKind::PermissionDenied,
        io::ErrorKind::NotADirectory => FailureKind::NotADirectory,
        io::ErrorKind::IsADirectory => FailureKind::IsADirectory,
        io::ErrorKind::DirectoryNotEmpty => FailureKind::NotEmpty,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => FailureKind::NoSpace,
        io::ErrorKind::FileTooLarge => FailureKind::TooLarge,
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidFilename => FailureKind::Invalid,
        io::ErrorKind::ResourceBusy | io::ErrorKind::WouldBlock => FailureKind::Busy,
        io::ErrorKind::ConnectionRefused => FailureKind::Refused,
        _ => FailureKind::Other,
    }
}

/// The system's text, without the error number that Rust adds.
fn describe(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_lowercase(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_named_in_plain_words() {
        let told = io_failure("/a/b", &io::Error::from_raw_os_error(libc::ENOENT));
        assert_eq!(told, failure(FailureKind::NotFound, "/a/b: no such file or directory"));
    }
}
