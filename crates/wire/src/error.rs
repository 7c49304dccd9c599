//! The body of every error.

use serde::Serialize;
use utoipa::ToSchema;

/// An error. Some errors have more fields, such as the output of a command that reached its timeout.
#[derive(Serialize, ToSchema)]
pub struct ErrorBody {
    /// A sentence for people.
    pub error: String,
    /// A stable code for programs.
    pub code: String,
    /// The id of this request in the server's log and in the audit log.
    pub request_id: String,
}
