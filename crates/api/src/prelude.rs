//! What almost every handler uses.

pub(crate) use std::sync::Arc;

pub(crate) use axum::http::{HeaderMap, StatusCode};
pub(crate) use axum::response::{IntoResponse, Response};
pub(crate) use axum::{Json, Router};
pub(crate) use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use crate::app::App;
pub(crate) use crate::auth::{Admin, Caller, Operator, Read, Run};
pub(crate) use crate::call::{Call, SandboxCall};
pub(crate) use crate::context::RequestContext;
pub(crate) use crate::convert::{IntoEngine, IntoWire};
pub(crate) use crate::error::ApiError;
pub(crate) use crate::extract::{JsonBody, Params, Parts};
