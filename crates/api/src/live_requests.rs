//! Requests in progress, each with the credential that it came with. When the credential stops working, the request
//! ends: its response stops, or its socket closes.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use sandling_service::{PreviewToken, Service};
use tokio::sync::watch;

/// A response of this size has been sent before anybody could revoke its token.
const SMALL: u64 = 64 * 1024;

/// All requests in progress.
#[derive(Default)]
pub(crate) struct LiveRequests(Mutex<Vec<Weak<LiveRequest>>>);

/// A request in progress, until its response or its socket has ended.
pub(crate) struct LiveRequest {
    credential: OnceLock<Credential>,
    ended: watch::Sender<bool>,
}

enum Credential {
    /// The prefix of an API token. Tokens that are derived from it count as the token itself.
    Token(String),
    Preview(PreviewToken),
}

impl LiveRequests {
    pub(crate) fn begin(&self) -> Arc<LiveRequest> {
        let request = Arc::new(LiveRequest { credential: OnceLock::new(), ended: watch::Sender::new(false) });
        self.lock().push(Arc::downgrade(&request));
        request
    }

    /// Ends the requests whose credentials no longer work.
    pub(crate) fn sweep(&self, service: &Service) {
        let live: Vec<Arc<LiveRequest>> = {
            let mut requests = self.lock();
            requests.retain(|request| request.strong_count() > 0);
            requests.iter().filter_map(Weak::upgrade).collect()
        };
        let mut known: HashMap<&str, bool> = HashMap::new();
        for request in &live {
            let works = match request.credential.get() {
                None => true,
                Some(Credential::Token(prefix)) => {
                    *known.entry(prefix).or_insert_with(|| !service.tokens.has_ended(prefix))
                }
                Some(Credential::Preview(token)) => service.previews.is_valid(token),
            };
            if !works {
                request.ended.send_replace(true);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<LiveRequest>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LiveRequest {
    // The first credential stays: a request is authorized once.
    pub(crate) fn came_with_token(&self, prefix: &str) {
        let _ = self.credential.set(Credential::Token(prefix.to_owned()));
    }

    pub(crate) fn came_with_preview(&self, token: &PreviewToken) {
        let _ = self.credential.set(Credential::Preview(token.clone()));
    }

    /// Completes when the request must end.
    pub(crate) fn must_end(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut ended = self.ended.subscribe();
        async move {
            if ended.wait_for(|ended| *ended).await.is_err() {
                std::future::pending().await
            }
        }
    }
}

/// The request that a connection was upgraded by. It travels with each request of the connection.
#[derive(Clone, Default)]
pub(crate) struct UpgradedBy(Arc<Mutex<Option<Upgrade>>>);

struct Upgrade {
    must_end: Pin<Box<dyn Future<Output = ()> + Send>>,
    over: bool,
    /// The request is in progress as long as its connection.
    _request: Arc<LiveRequest>,
}

impl UpgradedBy {
    pub(crate) fn set(&self, request: Arc<LiveRequest>) {
        let must_end = Box::pin(request.must_end());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Upgrade { must_end, over: false, _request: request });
    }

    /// Fails once the request must end. Only a reader is woken for that; every upgraded connection has one.
    pub(crate) fn check(&self, reader: Option<&mut Context<'_>>) -> io::Result<()> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(upgrade) = slot.as_mut() else { return Ok(()) };
        if let Some(context) = reader
            && !upgrade.over
        {
            upgrade.over = upgrade.must_end.as_mut().poll(context).is_ready();
        }
        if upgrade.over {
            Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the token was revoked"))
        } else {
            Ok(())
        }
    }
}

/// Makes a response's body end when its request must end.
pub(crate) fn end_with(request: Arc<LiveRequest>, response: Response) -> Response {
    if response.body().size_hint().upper().is_some_and(|size| size <= SMALL) {
        return response;
    }
    response.map(|body| Body::new(RevocableBody { must_end: Box::pin(request.must_end()), _request: request, body }))
}

struct RevocableBody {
    body: Body,
    must_end: Pin<Box<dyn Future<Output = ()> + Send>>,
    /// The request is in progress as long as its body.
    _request: Arc<LiveRequest>,
}

impl HttpBody for RevocableBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.must_end.as_mut().poll(context).is_ready() {
            return Poll::Ready(Some(Err(axum::Error::new("the token was revoked or has expired"))));
        }
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
