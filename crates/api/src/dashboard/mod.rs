//! The dashboard: its files, signing in, and requests that come with a session's cookie.

mod assets;
mod gate;
mod routes;
mod session;

pub(crate) use gate::gate;
pub(crate) use routes::router;
