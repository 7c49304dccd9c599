//! Admission: a workspace's quota is checked before anything is made for it.

mod admit;
mod bucket;
mod quota;
mod rows;

pub(crate) use admit::Admission;
pub use admit::{AdmitError, Reservation};
pub use quota::{DEFAULT_QUOTA, Quota, QuotaRefused, Resource, Resources, check};
