//! The client with well-behaved and misbehaving peers.

use super::*;
use proptest::prelude::*;

const LIMIT: Duration = Duration::from_secs(5);
const GREETING: &str = "{\"QMP\": {\"version\": {}, \"capabilities\": []}}\r\n";

/// A peer that greets, then answers each command with the result of `reply`.
fn peer(mut stream: UnixStream, reply: impl Fn(&Value) -> Vec<u8> + Send + 'static) {
    tokio::spawn(async move {
        stream.write_all(GREETING.as_bytes()).await.unwrap();
        let (read, mut write) = stream.into_split();
        let mut lines = Lines { reader: BufReader::new(read), line: Vec::new() };
        while let Ok(Some(command)) = lines.next().await {
            let bytes = match command["execute"].as_str() {
                Some("qmp_capabilities") => format!("{{\"return\": {{}}, \"id\": {}}}\n", command["id"]).into_bytes(),
                _ => reply(&command),
            };
            if write.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
}

async fn connected(reply: impl Fn(&Value) -> Vec<u8> + Send + 'static) -> Qmp {
    let (ours, theirs) = UnixStream::pair().unwrap();
    peer(theirs, reply);
    Qmp::negotiate(ours, LIMIT).await.unwrap()
}

#[tokio::test]
async fn an_answer_finds_its_question_among_events_and_strangers() {
    let qmp = connected(|command| {
        let mut lines = "{\"event\": \"STOP\", \"timestamp\": {}}\n{\"return\": 1, \"id\": 999}\n".to_owned();
        lines += &format!("{{\"return\": {{\"status\": \"paused\"}}, \"id\": {}}}\n", command["id"]);
        lines.into_bytes()
    })
    .await;
    let mut events = qmp.events();
    let answer = qmp.execute("query-status", json!({}), LIMIT).await.unwrap();
    assert_eq!(answer["status"], "paused");
    assert_eq!(events.recv().await.unwrap().name, "STOP");
}

#[tokio::test]
async fn a_refusal_carries_qemus_words() {
    let qmp = connected(|command| {
        format!("{{\"error\": {{\"class\": \"GenericError\", \"desc\": \"no\"}}, \"id\": {}}}\n", command["id"])
            .into_bytes()
    })
    .await;
    let error = qmp.execute("cont", json!({}), LIMIT).await.unwrap_err();
    assert_eq!(error.to_string(), "QEMU refused cont: no");
}

#[tokio::test]
async fn silence_ends_with_the_deadline() {
    let qmp = connected(|_| Vec::new()).await;
    let error = qmp.execute("stop", json!({}), Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(error, QmpError::TimedOut { .. }), "{error}");
}

#[tokio::test]
async fn an_endless_line_ends_the_connection() {
    let qmp = connected(|_| vec![b' '; MAX_LINE as usize + 10]).await;
    let error = qmp.execute("stop", json!({}), LIMIT).await.unwrap_err();
    assert!(matches!(error, QmpError::Closed { .. }), "{error}");
    let later = qmp.execute("stop", json!({}), LIMIT).await.unwrap_err();
    assert!(matches!(later, QmpError::Closed { .. } | QmpError::Io(_)), "{later}");
}

#[tokio::test]
async fn a_peer_that_does_not_greet_is_given_up() {
    let (ours, _theirs) = UnixStream::pair().unwrap();
    let error = Qmp::negotiate(ours, Duration::from_millis(20)).await.unwrap_err();
    assert!(matches!(error, QmpError::TimedOut { .. }), "{error}");
}

proptest! {
    #[test]
    fn rubbish_is_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let qmp = connected(move |_| [&bytes[..], b"\n[]\n"].concat()).await;
            assert!(qmp.execute("stop", json!({}), LIMIT).await.is_err());
        });
    }
}
