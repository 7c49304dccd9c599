//! How this node answers a request itself, and what it reads of a client's request before another node may get it.

use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::request::Parts;
use axum::response::Response;
use sandling_service::Principal;

use crate::app::App;
use crate::auth::presented;
use crate::error::ApiError;
use crate::extract;

pub(super) type Answering<'a> = Pin<Box<dyn Future<Output = Response> + Send + 'a>>;

/// The dialects of this node. Copies are the same.
#[derive(Clone, Copy)]
pub(super) struct Here<'a>(&'a (dyn Fn(Request) -> Answering<'a> + Send + Sync + 'a));

impl<'a> Here<'a> {
    pub(super) fn new(answer: &'a (dyn Fn(Request) -> Answering<'a> + Send + Sync + 'a)) -> Self {
        Self(answer)
    }

    pub(super) async fn answer(self, request: Request) -> Response {
        (self.0)(request).await
    }
}

/// A request with a valid token, taken apart, with its body.
pub(super) struct Opened {
    pub(super) parts: Parts,
    pub(super) body: Bytes,
    pub(super) principal: Principal,
}

/// What came of opening a request.
pub(super) enum Opening {
    Opened(Opened),
    /// The client has no valid token, and learns that from this node.
    NoToken(Request),
}

impl Opened {
    pub(super) async fn read(app: &App, request: Request) -> Result<Opening, ApiError> {
        let (parts, body) = request.into_parts();
        let Ok(principal) = app.service.tokens.authenticate(&presented(&parts)) else {
            return Ok(Opening::NoToken(Request::from_parts(parts, body)));
        };
        let body = extract::read(body).await?;
        Ok(Opening::Opened(Self { parts, body, principal }))
    }

    /// The request again, as often as it is needed.
    pub(super) fn request(&self) -> Request {
        Request::from_parts(self.parts.clone(), Body::from(self.body.clone()))
    }
}
