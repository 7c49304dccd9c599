//! DNS over TCP, spoken with the guest.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use super::connection::Connection;
use super::stream::GuestStream;
use crate::shared::Shared;
use crate::traffic::Traffic;

/// How long the guest may take for its next question.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the last answer may take to be fetched.
const LINGER: Duration = Duration::from_secs(2);

/// Answers questions until the guest has none, or too many.
pub(crate) async fn serve(shared: &Arc<Shared>, connection: Arc<Connection>) {
    let stream = GuestStream::metered(connection.clone(), Traffic::new(shared));
    let clock = async {
        connection.drive().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = questions(shared, stream) => {}
        () = clock => {}
    }
    connection.finish();
    connection.over(LINGER).await;
}

async fn questions(shared: &Shared, mut stream: GuestStream) -> std::io::Result<()> {
    let mut question = Vec::new();
    loop {
        let length = timeout(PATIENCE, stream.read_u16()).await??;
        question.resize(usize::from(length), 0);
        timeout(PATIENCE, stream.read_exact(&mut question)).await??;
        let reply = shared.dns.answer(shared, &question).await;
        let Some(answer) = reply.message else { return Ok(()) };
        stream.write_u16(answer.len() as u16).await?;
        stream.write_all(&answer).await?;
        // Thousands fit into a frame, so whoever asks too much has to connect for each.
        if reply.excessive {
            return Ok(());
        }
    }
}
