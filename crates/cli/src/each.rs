//! Commands that act on several sandboxes. A failure is printed, and the remaining sandboxes are still processed.

use std::process::ExitCode;

use crate::client::{Client, ClientError};
use crate::{outcome, show};

/// Runs `work` for each sandbox in order and prints the IDs for which it succeeded.
pub async fn sandbox(
    client: &Client,
    named: &[String],
    work: impl AsyncFn(&str) -> Result<(), ClientError>,
) -> anyhow::Result<ExitCode> {
    let mut last = ExitCode::SUCCESS;
    for name in named {
        let done = async {
            let id = client.sandbox(name).await?;
            work(&id).await?;
            Ok::<_, ClientError>(id)
        };
        match done.await {
            Ok(id) => show::line(id)?,
            Err(error) if named.len() == 1 => return Err(error.into()),
            Err(error) => last = outcome::report_error(&anyhow::Error::from(error).context(name.clone())),
        }
    }
    Ok(last)
}
