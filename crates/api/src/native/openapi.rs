//! The document that describes the API.

use std::sync::{Arc, LazyLock};

use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use utoipa_axum::router::OpenApiRouter;

use super::document::openapi_json;
use crate::app::App;

pub(crate) fn router() -> OpenApiRouter<Arc<App>> {
    OpenApiRouter::new().route("/openapi.json", get(document))
}

async fn document() -> Response {
    static DOCUMENT: LazyLock<String> = LazyLock::new(openapi_json);
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str()).into_response()
}
