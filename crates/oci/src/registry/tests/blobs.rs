use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::super::RegistryError;
use super::image::{descriptor, image};
use super::server::{Answer, Seen, Server, client};

/// Downloads the layer from this server. Checks that an error leaves no file.
async fn fetch(server: &Server) -> Result<Vec<u8>, RegistryError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("layer");
    let done = client().fetch_blob(&server.reference(), &descriptor(&image().layer), &path, &|_, _| {}).await;
    assert_eq!(path.exists(), done.is_ok());
    done.map(|()| std::fs::read(path).unwrap())
}

async fn fetch_error(handler: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> String {
    fetch(&Server::start(handler).await).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_blob_arrives_with_progress() {
    let server = Server::start(|seen| image().answer(seen)).await;
    assert_eq!(fetch(&server).await.unwrap(), image().layer);
    let (last, folder) = (AtomicU64::new(0), tempfile::tempdir().unwrap());
    let progress = |_: &_, received| last.store(received, Ordering::SeqCst);
    let path = folder.path().join("layer");
    client().fetch_blob(&server.reference(), &descriptor(&image().layer), &path, &progress).await.unwrap();
    assert_eq!(last.into_inner(), 100_000);
}

/// Sends a part of the layer and hangs up, and then the rest that the client asks for.
fn broken_once(ranges: bool) -> impl Fn(&Seen) -> Answer + Send + Sync + 'static {
    let attempts = AtomicUsize::new(0);
    move |seen| {
        let layer = image().layer;
        if attempts.fetch_add(1, Ordering::SeqCst) == 0 {
            return Answer::new(200, &[("content-length", "100000")], &layer[..40_000]);
        }
        let start: usize = seen.header("range").unwrap()["bytes=".len()..].trim_end_matches('-').parse().unwrap();
        assert!(start <= 40_000);
        match ranges {
            true => Answer::new(206, &[("content-range", &format!("bytes {start}-99999/100000"))], &layer[start..]),
            false => Answer::ok(&layer),
        }
    }
}

#[tokio::test]
async fn a_broken_download_continues_where_it_stopped() {
    for ranges in [true, false] {
        let server = Server::start(broken_once(ranges)).await;
        assert_eq!(fetch(&server).await.unwrap(), image().layer);
        assert_eq!(server.seen().len(), 2);
    }
}

#[tokio::test]
async fn a_download_that_always_breaks_is_given_up() {
    let server = Server::start(|_| Answer::new(200, &[("content-length", "100000")], &[b'x'; 10])).await;
    let why = fetch(&server).await.unwrap_err().to_string();
    assert!(why.contains("the connection to 127.0.0.1") && why.ends_with("; try again"), "{why}");
    assert_eq!(server.seen().len(), 3);
}

#[tokio::test]
async fn a_range_that_was_not_asked_for_is_refused() {
    let attempts = AtomicUsize::new(0);
    let why = fetch_error(move |_| match attempts.fetch_add(1, Ordering::SeqCst) {
        0 => Answer::new(200, &[("content-length", "100000")], &image().layer[..40_000]),
        _ => Answer::new(206, &[("content-range", "bytes 0-9/100000")], b"0123456789"),
    });
    let why = why.await;
    assert!(why.contains("sent 10 bytes for sha256:"), "{why}");
}

#[tokio::test]
async fn wrong_content_is_refused() {
    let why = fetch_error(|_| Answer::ok(&[0; 100_000])).await;
    assert!(why.contains("sent content with the digest sha256:"), "{why}");
    let why = fetch_error(|_| Answer::ok(b"short")).await;
    assert!(why.contains("sent 5 bytes for sha256:") && why.contains("instead of 100000"), "{why}");
}

#[tokio::test]
async fn an_endless_blob_is_cut_at_its_size() {
    for headers in [[("connection", "close")], [("content-length", "99999999999")]] {
        let why = fetch_error(move |_| Answer::endless(&headers)).await;
        assert!(why.contains("instead of 100000"), "{why}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_that_ends_early_is_refused() {
    let why = fetch_error(|_| Answer::raw(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc")).await;
    assert!(why.contains("sent 3 bytes"), "{why}");
}

#[tokio::test]
async fn a_silent_or_slow_registry_is_given_up() {
    let started = Instant::now();
    let why = fetch_error(|_| Answer::new(200, &[("content-length", "100000")], b"a").and_hang()).await;
    assert!(why.contains("did not answer within 1 s"), "{why}");
    let why = fetch_error(|_| Answer::raw(b"").and_hang()).await;
    assert!(why.contains("did not answer within 1 s"), "{why}");
    let why = fetch_error(|_| Answer::ok(&image().layer).and_drip(Duration::from_millis(20))).await;
    assert!(why.contains("sends too slowly"), "{why}");
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[tokio::test]
async fn several_blobs_arrive_and_a_failure_leaves_none() {
    let blobs: Vec<Vec<u8>> = (0..8_u8).map(|number| vec![number; 1000]).collect();
    let served = blobs.clone();
    let server = Server::start(move |seen| {
        let found = served.iter().find(|blob| seen.path.ends_with(descriptor(blob).digest.as_str()));
        found.map_or_else(|| Answer::new(404, &[], b""), |blob| Answer::ok(blob))
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let wanted = |blobs: &[Vec<u8>]| -> Vec<(_, PathBuf)> {
        let paths = blobs.iter().map(|blob| folder.path().join(descriptor(blob).digest.hex()));
        blobs.iter().map(|blob| descriptor(blob)).zip(paths).collect()
    };
    let twice = [blobs.clone(), blobs.clone()].concat();
    let progress = Mutex::new(0);
    let count = |_: &_, received: u64| *progress.lock().unwrap() += received;
    client().fetch_blobs(&server.reference(), &wanted(&twice), &count).await.unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 8);
    assert_eq!(*progress.lock().unwrap(), 8000);
    for (_, path) in wanted(&blobs) {
        std::fs::remove_file(path).unwrap();
    }
    let with_missing = [blobs, vec![b"missing".to_vec()]].concat();
    let error = client().fetch_blobs(&server.reference(), &wanted(&with_missing), &count).await.unwrap_err();
    assert!(matches!(error, RegistryError::NoSuchBlob { .. }), "{error}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn three_blobs_are_downloaded_at_once_and_a_cancelled_download_leaves_no_file() {
    let server = Server::start(|_| Answer::new(200, &[("content-length", "100")], b"x").and_hang()).await;
    let folder = tempfile::tempdir().unwrap();
    let blob = |number: u8| (descriptor(&[number; 100]), folder.path().join(number.to_string()));
    let blobs: Vec<_> = (0..8).map(blob).collect();
    let (reference, client) = (server.reference(), client());
    let arrived = AtomicUsize::new(0);
    let progress = |_: &_, _| {
        arrived.fetch_add(1, Ordering::SeqCst);
    };
    let download = client.fetch_blobs(&reference, &blobs, &progress);
    // Shorter than the idle timeout, so that none of the first three gives up.
    tokio::time::timeout(Duration::from_millis(800), download).await.unwrap_err();
    assert_eq!((server.seen().len(), arrived.into_inner()), (3, 3));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_named_as_the_cause() {
    let server = Server::start(|seen| image().answer(seen)).await;
    let blob = descriptor(&image().layer);
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing/layer");
    let error = client().fetch_blob(&server.reference(), &blob, &missing, &|_, _| {}).await.unwrap_err();
    assert!(matches!(error, RegistryError::Write { .. }), "{error}");
    // A disk that is full.
    let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
    let client = client();
    let source = client.sources(&server.reference()).remove(0);
    let error = client.fetch_into(&source, &blob, full, &|_, _| {}).await.unwrap_err().to_string();
    assert!(error.contains("cannot be written") && error.contains("No space left"), "{error}");
}

#[tokio::test]
async fn reading_is_confirmed_by_the_registry() {
    let server = Server::start(|seen| image().answer(seen)).await;
    client().may_read(&server.reference(), &descriptor(&image().layer)).await.unwrap();
    assert_eq!(server.seen()[0].method, "HEAD");
    let error = client().may_read(&server.reference(), &descriptor(b"other")).await.unwrap_err();
    assert!(matches!(error, RegistryError::NoSuchBlob { .. }), "{error}");
    let refusing = Server::start(|_| Answer::new(403, &[], b"")).await;
    let error = client().may_read(&refusing.reference(), &descriptor(&image().layer)).await.unwrap_err();
    assert!(matches!(error, RegistryError::Denied { .. }), "{error}");
}

#[tokio::test]
async fn reading_is_confirmed_if_the_storage_refuses_head() {
    let storage = Server::start(|seen| match seen.method.as_str() {
        "HEAD" => Answer::new(403, &[], b""),
        _ => Answer::new(206, &[("content-range", "bytes 0-0/100000")], b"x"),
    })
    .await;
    let link = storage.url("/signed");
    let server = Server::start(move |_| Answer::redirect(&link)).await;
    client().may_read(&server.reference(), &descriptor(&image().layer)).await.unwrap();
    assert_eq!(storage.seen().len(), 2);
}
