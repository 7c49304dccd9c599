//! DNS over TCP with the guest.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

use crate::dns_server::answer;
use crate::shared::Shared;
use crate::tcp::{Connection, GuestStream};

/// How long the guest may take to send its next query.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the guest may take to receive the last answer.
const LINGER: Duration = Duration::from_secs(2);

/// Answers queries until the guest ends the connection or exceeds its limits.
pub(crate) async fn serve(shared: &Arc<Shared>, connection: Arc<Connection>) {
    let stream = GuestStream::metered(connection.clone(), shared.traffic());
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
        let reply = answer(shared, &question).await;
        let Some(message) = reply.message else { return Ok(()) };
        stream.write_u16(message.len() as u16).await?;
        stream.write_all(&message).await?;
        // Thousands of queries fit into one frame, so a guest that asks too much must connect again for each query.
        if reply.excessive {
            return Ok(());
        }
    }
}
