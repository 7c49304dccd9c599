//! Admission: a workspace's quota is checked before anything is made for it.

mod admit;
mod bucket;
mod delete_workspace;
mod quota;
mod rows;
mod share;

pub use admit::{Admission, AdmitError, Reservation};
pub(crate) use bucket::{Bucket, Rate, Wait};
pub use quota::{DEFAULT_QUOTA, Quota, QuotaRefused, Resource, Resources, check};
pub use share::{Asking, Claim, Claimed, OtherClaim, OtherHomes};
