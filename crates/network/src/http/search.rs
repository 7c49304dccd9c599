//! Searches for placeholders in places where no secret is inserted: request bodies and WebSocket messages.
//!
//! It does not see compressed or encrypted content. Such content holds only the placeholder, and no secret.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::placeholders::contains;
use crate::policy::Refusal;
use crate::secret::SecretSet;

/// Searches for placeholders in a stream of bytes, wherever it is split.
#[derive(Clone, Default)]
pub struct Search {
    placeholders: Vec<Vec<u8>>,
    /// The last bytes, which may contain the start of a placeholder.
    tail: Vec<u8>,
}

impl Search {
    pub fn new(secrets: &SecretSet) -> Search {
        let placeholders = secrets.iter().map(|secret| secret.placeholder().as_bytes().to_vec()).collect();
        Search { placeholders, tail: Vec::new() }
    }

    /// Whether there is no placeholder to search for.
    pub fn is_idle(&self) -> bool {
        self.placeholders.is_empty()
    }

    /// Takes more bytes. Returns whether they complete a placeholder.
    pub fn finds(&mut self, bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        let found = self.placeholders.iter().any(|placeholder| contains(&self.tail, placeholder));
        let longest = self.placeholders.iter().map(Vec::len).max().unwrap_or_default();
        let known = self.tail.len().saturating_sub(longest.saturating_sub(1));
        self.tail.drain(..known);
        found
    }
}

/// The body of a request. It fails if it contains a placeholder, so that the server never gets the whole body.
pub struct Searched {
    body: Incoming,
    search: Search,
    found: Arc<AtomicBool>,
}

impl Searched {
    /// A body that sets `found` if it fails because of a placeholder.
    pub fn new(body: Incoming, search: Search, found: Arc<AtomicBool>) -> Searched {
        Searched { body, search, found }
    }
}

impl Body for Searched {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()).and_then(Frame::data_ref);
        if !self.search.is_idle()
            && let Some(data) = data
            && self.search.finds(data)
        {
            self.found.store(true, Ordering::Relaxed);
            return Poll::Ready(Some(Err(Refusal::SecretMisplaced.into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::placement::Placement;
    use crate::secret::Secret;

    pub const PLACEHOLDER: &str = "sandling-placeholder-1";

    pub fn search() -> Search {
        let hosts = vec!["api.example.com".parse().unwrap()];
        Search::new(&SecretSet::new(vec![
            Secret::new("token", PLACEHOLDER, "value".to_owned(), hosts, vec![Placement::default()]).unwrap(),
        ]))
    }

    proptest! {
        #[test]
        fn a_placeholder_is_found_wherever_it_is_split(before in "[a-z-]{0,40}", after in "[a-z-]{0,40}", cut in 1usize..30) {
            let whole = format!("{before}{PLACEHOLDER}{after}");
            let mut looking = search();
            prop_assert!(whole.as_bytes().chunks(cut).any(|chunk| looking.finds(chunk)));
            prop_assert!(looking.tail.len() < PLACEHOLDER.len());
        }

        #[test]
        fn nothing_else_is_found(text in "[a-z-]{0,200}", cut in 1usize..30) {
            let mut looking = search();
            prop_assert!(!text.as_bytes().chunks(cut).any(|chunk| looking.finds(chunk)));
        }
    }
}
