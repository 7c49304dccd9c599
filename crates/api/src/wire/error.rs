//! The body of every error.

use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong. Some errors have more fields, such as the output a command had produced before its deadline.
#[derive(Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// One sentence for a person.
    error: String,
    /// One word for a program; it does not change.
    code: String,
    /// Under which the server's log and the audit log have this request.
    request_id: String,
}
