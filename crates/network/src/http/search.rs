//! Looks for placeholders where no secret is placed: in what a request carries, and in a WebSocket's messages.
//!
//! What is compressed or encrypted inside is not seen through; there is nothing in it but the placeholder.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::place::contains;
use crate::policy::Refusal;
use crate::secret::SecretSet;

/// Looks for placeholders in a stream of bytes, however it is cut.
#[derive(Clone, Default)]
pub struct Search {
    placeholders: Vec<Vec<u8>>,
    /// The last bytes, in which one may have begun.
    tail: Vec<u8>,
}

impl Search {
    pub fn new(secrets: &SecretSet) -> Search {
        let placeholders = secrets.iter().map(|secret| secret.placeholder().as_bytes().to_vec()).collect();
        Search { placeholders, tail: Vec::new() }
    }

    /// Whether there is nothing to look for.
    pub fn is_idle(&self) -> bool {
        self.placeholders.is_empty()
    }

    /// Takes in more; answers whether it completes a placeholder.
    pub fn finds(&mut self, bytes: &[u8]) -> bool {
        self.tail.extend_from_slice(bytes);
        let found = self.placeholders.iter().any(|placeholder| contains(&self.tail, placeholder));
        let longest = self.placeholders.iter().map(Vec::len).max().unwrap_or_default();
        let known = self.tail.len().saturating_sub(longest.saturating_sub(1));
        self.tail.drain(..known);
        found
    }
}

/// The body of a request. It fails where a placeholder is in it, so that the server never has it whole.
pub struct Searched {
    body: Incoming,
    search: Search,
    found: Arc<AtomicBool>,
}

impl Searched {
    /// A body that tells through `found` why it failed.
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
    use crate::secret::Secret;

    pub const PLACEHOLDER: &str = "sandling-placeholder-1";

    pub fn search() -> Search {
        let hosts = vec!["api.example.com".parse().unwrap()];
        Search::new(&SecretSet::new(vec![Secret::new("token", PLACEHOLDER, "value".to_owned(), hosts).unwrap()]))
    }

    proptest! {
        #[test]
        fn a_placeholder_is_found_however_it_is_cut(before in "[a-z-]{0,40}", after in "[a-z-]{0,40}", cut in 1usize..30) {
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
