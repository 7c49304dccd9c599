//! The same for several sandboxes: what does not work for one is said, and the others are done all the same.

use std::process::ExitCode;

use crate::client::{Client, ClientError};
use crate::{outcome, show};

/// Does something to each sandbox, in order, and prints the ids of those it was done to.
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
            Err(error) => last = outcome::failed(&anyhow::Error::from(error).context(name.clone())),
        }
    }
    Ok(last)
}
