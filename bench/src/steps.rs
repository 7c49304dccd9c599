//! How long the engine's steps take, from the spans that it has for exporters of traces.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sandling_engine::TRACE_TARGET;
use tracing::span::{Attributes, Id};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

/// The steps that have ended.
#[derive(Debug, Clone, Default)]
pub struct Steps(Arc<Mutex<BTreeMap<&'static str, Duration>>>);

impl Steps {
    /// Records the steps of everything that this process does from now on.
    pub fn install() -> anyhow::Result<Self> {
        let steps = Self::default();
        let layer = steps.clone().with_filter(OnlySteps);
        tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
        Ok(steps)
    }

    /// The steps that ended since the last call. The times of equal steps are added.
    pub fn take(&self) -> BTreeMap<&'static str, Duration> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct OnlySteps;

impl<S> Filter<S> for OnlySteps {
    fn enabled(&self, metadata: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        metadata.is_span() && metadata.target() == TRACE_TARGET
    }
}

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Steps {
    fn on_new_span(&self, _: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(Instant::now());
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(began) = span.extensions().get::<Instant>().copied() else { return };
        let mut steps = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *steps.entry(span.name()).or_default() += began.elapsed();
    }
}
