//! Finds the server's address and token.

use hyper::Uri;
use sandling_wire::{Home, TOKEN_VARIABLE, read_local_token};

use super::error::ClientError;
use crate::announce;

/// Environment variable with the address of a server to use instead of the home's own.
pub const API_VARIABLE: &str = "SANDLING_API";

#[derive(Debug, Clone)]
pub struct Server {
    /// `http://127.0.0.1:8080`, without a slash at the end.
    pub address: String,
    pub token: String,
    pub origin: Origin,
}

/// How the server was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Through `SANDLING_API`.
    Environment,
    /// It announced itself in this home, so it runs on this machine.
    Home,
}

impl Server {
    /// The server in `SANDLING_API`, otherwise the one that serves this home now, if any.
    pub fn find() -> Result<Option<Self>, ClientError> {
        let home = Home::from_environment();
        let served = match &home {
            Some(home) => {
                announce::find(home).map_err(|source| ClientError::Home { what: "the server's address", source })?
            }
            None => None,
        };
        let local_token = || match &home {
            Some(home) => {
                read_local_token(home).map_err(|source| ClientError::Home { what: "the server's token", source })
            }
            None => Ok(None),
        };
        choose(variable(API_VARIABLE), variable(TOKEN_VARIABLE), served, local_token)
    }
}

fn choose(
    named: Option<String>,
    token: Option<String>,
    served: Option<String>,
    local_token: impl FnOnce() -> Result<Option<String>, ClientError>,
) -> Result<Option<Server>, ClientError> {
    let (address, origin) = match (named, &served) {
        (Some(named), _) => (checked(&named)?, Origin::Environment),
        (None, Some(served)) => (served.clone(), Origin::Home),
        (None, None) => return Ok(None),
    };
    let token = match token {
        Some(token) => Some(token),
        // The home's token grants full access here, so it is sent only to the home's own server.
        None if served.is_some_and(|served| is_same(&served, &address)) => local_token()?,
        None => None,
    };
    match token {
        Some(token) => Ok(Some(Server { address, token, origin })),
        None => Err(ClientError::NoToken { address }),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().map(|value| value.trim().to_owned()).filter(|value| !value.is_empty())
}

fn checked(address: &str) -> Result<String, ClientError> {
    let bad = || ClientError::BadAddress(address.to_owned());
    let trimmed = address.trim_end_matches('/');
    let uri: Uri = trimmed.parse().map_err(|_| bad())?;
    let known = matches!(uri.scheme_str(), Some("http" | "https"));
    // The text before an @ would be parsed as user name and password, which the client does not send.
    let plain = uri.authority().is_some_and(|authority| !authority.as_str().contains('@')) && uri.query().is_none();
    if known && plain { Ok(trimmed.to_owned()) } else { Err(bad()) }
}

fn is_same(served: &str, named: &str) -> bool {
    let place = |address: &str| {
        let uri: Uri = address.parse().ok()?;
        let host = match uri.host()? {
            "localhost" | "127.0.0.1" | "[::1]" => "localhost",
            other => other,
        };
        Some((uri.scheme_str()?.to_owned(), host.to_owned(), uri.port_u16()))
    };
    place(served).is_some_and(|served| place(named) == Some(served))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    fn local() -> Result<Option<String>, ClientError> {
        Ok(some("local"))
    }

    #[test]
    fn the_home_token_is_sent_only_to_the_home_server() {
        let served = || some("http://127.0.0.1:8080");
        let own = choose(None, None, served(), local).unwrap().unwrap();
        assert_eq!((own.token.as_str(), own.origin), ("local", Origin::Home));
        let named = choose(some("http://localhost:8080/"), None, served(), local).unwrap().unwrap();
        assert_eq!((named.token.as_str(), named.address.as_str()), ("local", "http://localhost:8080"));
        for other in ["http://127.0.0.1:8081", "https://127.0.0.1:8080", "http://example.org:8080"] {
            let refused = choose(some(other), None, served(), local);
            assert!(matches!(refused, Err(ClientError::NoToken { .. })), "{other}");
            assert_eq!(choose(some(other), some("mine"), served(), local).unwrap().unwrap().token, "mine");
        }
    }

    #[test]
    fn without_an_address_no_server_is_found() {
        assert!(choose(None, some("mine"), None, local).unwrap().is_none());
    }

    #[test]
    fn invalid_addresses_are_rejected() {
        for bad in ["127.0.0.1:8080", "ftp://x", "http://", "http://me:secret@x", "http://x/?a=b", "http:// x"] {
            assert!(matches!(checked(bad), Err(ClientError::BadAddress(_))), "{bad}");
        }
        assert_eq!(checked("https://x.example/sandling/").unwrap(), "https://x.example/sandling");
    }
}
