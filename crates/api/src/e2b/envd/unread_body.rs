//! Reads the rest of a refused upload, within limits.
//!
//! If the server answers and closes the connection while a client still sends, Node's client reports a broken pipe in most
//! cases, and not the answer.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt;
use tokio::sync::Mutex;

/// The most that is read and dropped.
const MOST_BYTES: usize = 64 * 1024 * 1024;
const LONGEST: Duration = Duration::from_secs(10);

/// What the handler of a request has not read of its body.
pub(super) struct UnreadBody(Arc<Mutex<Body>>);

impl UnreadBody {
    /// The request with a body that can be read from here, too.
    pub(super) fn of(request: Request) -> (Request, Self) {
        let (parts, body) = request.into_parts();
        let shared = Arc::new(Mutex::new(body));
        let stream = futures_util::stream::unfold(shared.clone(), |shared| async move {
            let data = loop {
                let frame = shared.lock().await.frame().await?;
                match frame.map(|frame| frame.into_data()) {
                    Ok(Ok(data)) => break Ok(data),
                    // Trailers, which no upload has a use for.
                    Ok(Err(_)) => {}
                    Err(error) => break Err(error),
                }
            };
            Some((data, shared))
        });
        (Request::from_parts(parts, Body::from_stream(stream)), Self(shared))
    }

    /// Reads and drops the rest, up to the limits.
    pub(super) async fn discard(self) {
        let _ = tokio::time::timeout(LONGEST, async {
            let mut left = MOST_BYTES;
            let mut body = self.0.lock().await;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, |data| data.len());
                let Some(rest) = left.checked_sub(length) else { return };
                left = rest;
            }
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A body of many parts that counts those that were read.
    fn request(parts: usize, size: usize) -> (Request, Arc<AtomicUsize>) {
        let read = Arc::new(AtomicUsize::new(0));
        let count = read.clone();
        let parts = futures_util::stream::iter((0..parts).map(move |_| {
            count.fetch_add(1, Ordering::Relaxed);
            Ok::<_, std::io::Error>(vec![0_u8; size])
        }));
        (Request::new(Body::from_stream(parts)), read)
    }

    #[tokio::test]
    async fn the_rest_is_read_after_the_handler_has_given_up() {
        let (request, read) = request(10, 1000);
        let (request, rest) = UnreadBody::of(request);
        let mut body = request.into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap().len(), 1000);
        drop(body);
        assert!(read.load(Ordering::Relaxed) < 10);
        rest.discard().await;
        assert_eq!(read.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn no_more_than_the_limit_is_read() {
        let size = 1024 * 1024;
        let (request, read) = request(1000, size);
        let (_, rest) = UnreadBody::of(request);
        rest.discard().await;
        assert!(read.load(Ordering::Relaxed) <= MOST_BYTES / size + 2);
    }
}
