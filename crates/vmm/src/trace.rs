//! Spans of the steps in which a machine starts, for an exporter of traces.

/// The target of all spans that are exported.
pub const TRACE_TARGET: &str = "sandling::trace";

/// A span of one step.
macro_rules! step {
    ($name:literal) => {
        tracing::info_span!(target: $crate::trace::TRACE_TARGET, $name)
    };
}
pub(crate) use step;
