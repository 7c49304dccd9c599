//! Sessions of browsers, and the one-time links that begin them.
//!
//! A session is a token that is derived from an API token. It has the API token's workspace and scope, and it ends with
//! the API token. Nothing is stored for it, so sessions survive a restart of the server. One-time codes and sessions that
//! were signed out are only kept in memory: a restart makes unused codes invalid.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use jiff::{SignedDuration, Timestamp};
use sandling_service::{Principal, Service, random};
use sha2::{Digest, Sha256};

/// The purpose that a session's token is signed for.
const PURPOSE: &str = "dashboard session";
/// How long a session lasts, unless its API token ends earlier.
const LIFETIME: SignedDuration = SignedDuration::from_hours(12);
/// How long a one-time link works.
pub(super) const LINK_LIFETIME: Duration = Duration::from_secs(300);
/// Older links stop working when there are more than this.
const MOST_LINKS: usize = 1000;

const COOKIE: &str = "sandling_session";
/// A browser accepts a cookie with this prefix only over HTTPS and for exactly this host.
const SECURE_COOKIE: &str = "__Host-sandling_session";

#[derive(Default)]
pub(super) struct Sessions {
    /// By the hash of the code.
    links: Mutex<HashMap<[u8; 32], Link>>,
    /// Hashes of sessions that were signed out, and when they would have expired.
    signed_out: Mutex<HashMap<[u8; 32], Timestamp>>,
}

struct Link {
    principal: Principal,
    until: Instant,
}

/// A session as it is handed to a browser.
pub(super) struct NewSession {
    pub(super) secret: String,
    pub(super) expires_at: Timestamp,
}

impl Sessions {
    /// A code that signs in once, as this principal.
    pub(super) fn create_link(&self, principal: &Principal) -> String {
        let code = random::hex::<32>();
        let now = Instant::now();
        let mut links = lock(&self.links);
        links.retain(|_, link| link.until > now);
        if links.len() >= MOST_LINKS
            && let Some(oldest) = links.iter().min_by_key(|(_, link)| link.until).map(|(hash, _)| *hash)
        {
            links.remove(&oldest);
        }
        links.insert(digest(&code), Link { principal: principal.clone(), until: now + LINK_LIFETIME });
        code
    }

    /// The principal of a code, which no longer works from now on.
    pub(super) fn redeem(&self, code: &str) -> Option<Principal> {
        let link = lock(&self.links).remove(&digest(code))?;
        (link.until > Instant::now()).then_some(link.principal)
    }

    /// Returns nothing if the API token has just ended.
    pub(super) fn begin(service: &Service, principal: &Principal) -> Option<NewSession> {
        let expires_at = Timestamp::now() + LIFETIME;
        let secret = service.derived_tokens.issue_until(principal, PURPOSE, expires_at);
        (!secret.is_empty()).then_some(NewSession { secret, expires_at })
    }

    /// The principal of a session that is still valid.
    pub(super) fn check(&self, service: &Service, secret: &str) -> Option<Principal> {
        if lock(&self.signed_out).contains_key(&digest(secret)) {
            return None;
        }
        service.derived_tokens.check(secret, PURPOSE)
    }

    pub(super) fn end(&self, secret: &str) {
        let now = Timestamp::now();
        let mut signed_out = lock(&self.signed_out);
        signed_out.retain(|_, expires| *expires > now);
        signed_out.insert(digest(secret), now + LIFETIME);
    }
}

/// What a page must send with every change. Only pages of this origin can read it, and it cannot be computed without the
/// session, which no script can read.
pub(super) fn csrf_token(secret: &str) -> String {
    digest(&format!("csrf:{secret}")).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// When a session ends by itself. It is part of the secret.
pub(super) fn expires_at(secret: &str) -> Option<Timestamp> {
    Timestamp::from_second(secret.split('.').nth(1)?.parse().ok()?).ok()
}

/// The session of a request.
pub(super) fn of(headers: &HeaderMap) -> Option<&str> {
    let values = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = values.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut sessions = pairs.filter(|(name, _)| [COOKIE, SECURE_COOKIE].contains(name));
    sessions.next().map(|(_, secret)| secret).filter(|secret| !secret.is_empty())
}

/// The header that stores a session in the browser.
pub(super) fn cookie(session: &NewSession, scheme: &str) -> HeaderValue {
    let seconds = session.expires_at.as_second() - Timestamp::now().as_second();
    header_for(&session.secret, seconds, scheme)
}

/// The header that removes the session from the browser.
pub(super) fn no_cookie(scheme: &str) -> HeaderValue {
    header_for("", 0, scheme)
}

fn header_for(secret: &str, seconds: i64, scheme: &str) -> HeaderValue {
    let (name, secure) = if scheme == "https" { (SECURE_COOKIE, "; Secure") } else { (COOKIE, "") };
    let text = format!("{name}={secret}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    text.parse().expect("a derived token has letters, digits, dots and underscores")
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use sandling_service::{Scope, WorkspaceName};

    use super::*;

    fn principal() -> Principal {
        Principal {
            workspace: WorkspaceName::default(),
            scope: Scope::Read,
            token_prefix: "sdl_00000000".to_owned(),
            name: "t".to_owned(),
        }
    }

    #[test]
    fn a_link_works_once() {
        let sessions = Sessions::default();
        let code = sessions.create_link(&principal());
        assert_eq!(sessions.redeem("another"), None);
        assert_eq!(sessions.redeem(&code), Some(principal()));
        assert_eq!(sessions.redeem(&code), None);
    }

    #[test]
    fn old_links_make_room_for_new_ones() {
        let sessions = Sessions::default();
        let first = sessions.create_link(&principal());
        let last = (0..MOST_LINKS).map(|_| sessions.create_link(&principal())).last().unwrap();
        assert_eq!(sessions.redeem(&first), None);
        assert!(sessions.redeem(&last).is_some());
    }

    #[test]
    fn a_cookie_is_for_this_site_only_and_no_script_reads_it() {
        let session = NewSession { secret: "sdl_0.1.ab".to_owned(), expires_at: Timestamp::now() + LIFETIME };
        let plain = cookie(&session, "http");
        let plain = plain.to_str().unwrap();
        assert!(
            plain.starts_with("sandling_session=sdl_0.1.ab; Path=/; HttpOnly; SameSite=Strict; Max-Age=43"),
            "{plain}"
        );
        assert!(!plain.contains("Secure"), "{plain}");
        let secure = cookie(&session, "https");
        assert!(
            secure.to_str().unwrap().starts_with("__Host-sandling_session=")
                && secure.to_str().unwrap().ends_with("; Secure")
        );
        let mut headers = HeaderMap::new();
        headers.insert(header::COOKIE, "a=1; sandling_session=x.1.y; b=2".parse().unwrap());
        assert_eq!(of(&headers), Some("x.1.y"));
        assert_eq!(expires_at("x.60.y"), Some(Timestamp::from_second(60).unwrap()));
    }
}
