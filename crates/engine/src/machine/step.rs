//! Progress reports of long work.

use sandling_image::Progress;
use serde::Serialize;

/// One step of a long piece of work, for progress reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    pub text: String,
    /// How far, of how much, where that is known.
    pub progress: Option<(u64, u64)>,
}

impl From<&Progress> for Step {
    fn from(progress: &Progress) -> Self {
        let text = match progress.detail.as_str() {
            "" => progress.step.title().to_owned(),
            detail => format!("{}: {detail}", progress.step.title()),
        };
        Self { text, progress: progress.total.map(|total| (progress.done, total)) }
    }
}

pub(crate) type OnStep<'a> = &'a (dyn Fn(Step) + Send + Sync);
