//! The body of every error.

use serde::Serialize;
use utoipa::ToSchema;

/// What went wrong. Some errors have more fields, such as the output a command had produced before its deadline.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    /// One sentence for a person.
    pub error: String,
    /// One word for a program; it does not change.
    pub code: String,
    /// Under which the server's log and the audit log have this request.
    pub request_id: String,
}
