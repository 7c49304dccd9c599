//! The operator's token that a server creates at its first start and keeps in its home directory.

use std::path::PathBuf;
use std::{fs, io};

use crate::home::Home;

/// In the server's environment: a token that it accepts as an operator's. In a client's environment: the token to send.
pub const TOKEN_VARIABLE: &str = "SANDLING_TOKEN";
const FILE: &str = "token";

pub fn local_token_path(home: &Home) -> PathBuf {
    home.root().join(FILE)
}

/// Reads the token; `None` if no server has ever started with this home directory.
pub fn read_local_token(home: &Home) -> io::Result<Option<String>> {
    match fs::read_to_string(local_token_path(home)) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|token| !token.is_empty())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
