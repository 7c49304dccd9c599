//! Ending the machines of builds that an earlier server left unfinished.

use sandling_engine::store::StoreError;
use sandling_engine::{ChangeError, EndReason};

use super::start::Builds;

#[derive(Debug, thiserror::Error)]
enum CleanUpError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    End(#[from] ChangeError),
}

impl Builds {
    /// Ends the machines of interrupted builds.
    pub async fn clean_up(&self) {
        if let Err(error) = self.end_machines().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "cannot end the machines of interrupted builds; they end when their TTL does"
            );
        }
    }

    /// The failure of the builds is stored last, so that the next server tries again if this one dies meanwhile.
    async fn end_machines(&self) -> Result<(), CleanUpError> {
        let interrupted = self.registry.interrupted()?;
        if interrupted.is_empty() {
            return Ok(());
        }
        self.engine.settled().await;
        for info in self.engine.list() {
            let id = info.settings.for_build.as_ref();
            if interrupted.iter().any(|build| build.workspace == info.workspace && Some(&build.id) == id)
                && let Some(sandbox) = self.engine.get(&info.id)
            {
                sandbox.end(EndReason::Requested).await?;
            }
        }
        interrupted.iter().for_each(|build| self.registry.end_interrupted(build));
        Ok(())
    }
}
