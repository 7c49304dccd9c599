//! The history of resource usage: 5 seconds apart for an hour, a minute apart for a day.

mod history;
mod host;
mod sampler;
mod series;

pub use history::{History, HistoryQuery, MetricHistory};
pub use host::HostResources;
pub use sampler::record_metrics;
pub use series::{MetricPoint, SeriesInfo};
