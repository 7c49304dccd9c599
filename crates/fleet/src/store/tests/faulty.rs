//! A server that fails, is slow and lies.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::{Barrier, Semaphore};

use super::super::CHUNK;

/// What is wrong with the packs that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Nothing,
    Fails,
    NeverAnswers,
    Truncates,
    Corrupts,
    Swells,
    /// Answers with another pack.
    Swaps,
    /// Sends one byte in each of so many seconds.
    Trickles(u64),
}

pub(super) struct Faulty {
    objects: InMemory,
    fault: Mutex<Fault>,
    pub(super) puts: AtomicUsize,
    pub(super) gets: AtomicUsize,
    /// How far the store's clock is behind that of the nodes.
    pub(super) behind: Mutex<Duration>,
    /// How much longer ago than it says an object was written.
    aged: Mutex<HashMap<Path, Duration>>,
    /// Two that look for the same object at once both learn that there is none.
    pub(super) meet: Mutex<Option<Arc<Barrier>>>,
    /// Whether it knows how to write an object only if there is none.
    pub(super) creates: AtomicBool,
    /// Each deletion takes one of these.
    pub(super) deletions: Arc<Semaphore>,
}

impl Faulty {
    pub(super) fn new() -> Arc<Self> {
        let (puts, gets, behind, aged, meet) = Default::default();
        let deletions = Arc::new(Semaphore::new(Semaphore::MAX_PERMITS));
        let fault = Mutex::new(Fault::Nothing);
        let (objects, creates) = (InMemory::new(), AtomicBool::new(true));
        Arc::new(Self { objects, fault, puts, gets, behind, aged, meet, creates, deletions })
    }

    /// Makes all objects that there are older.
    pub(super) async fn age_all(&self, by: Duration) {
        let all: Vec<_> = self.objects.list(None).collect().await;
        self.aged.lock().unwrap().extend(all.into_iter().map(|found| (found.unwrap().location, by)));
    }

    fn dated(&self, mut meta: ObjectMeta) -> ObjectMeta {
        meta.last_modified -= *self.behind.lock().unwrap();
        meta.last_modified -= self.aged.lock().unwrap().get(&meta.location).copied().unwrap_or_default();
        meta
    }

    pub(super) fn set(&self, fault: Fault) {
        *self.fault.lock().unwrap() = fault;
    }

    async fn wait(&self) -> Result<Fault> {
        let fault = *self.fault.lock().unwrap();
        match fault {
            Fault::NeverAnswers => std::future::pending().await,
            Fault::Fails => Err(object_store::Error::Generic { store: "faulty", source: "500".into() }),
            _ => Ok(fault),
        }
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faulty")
    }
}

impl fmt::Display for Faulty {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Faulty")
    }
}

#[async_trait]
impl ObjectStore for Faulty {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        self.wait().await?;
        self.puts.fetch_add(usize::from(at.as_ref() != "clock"), Ordering::SeqCst);
        if options.mode == PutMode::Create && !self.creates.load(Ordering::SeqCst) {
            let (operation, implementer) = ("create".to_owned(), "faulty".to_owned());
            return Err(object_store::Error::NotImplemented { operation, implementer });
        }
        let put = self.objects.put_opts(at, payload, options).await?;
        self.aged.lock().unwrap().remove(at);
        Ok(put)
    }

    async fn put_multipart_opts(&self, at: &Path, options: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        self.objects.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.wait().await?;
        let is_head = options.head;
        let found = self.objects.get_opts(at, options).await;
        let meet = self.meet.lock().unwrap().clone();
        let is_missing = found.is_err();
        if let Some(meet) = meet.filter(|_| is_missing) {
            meet.wait().await;
        }
        let mut found = found?;
        found.meta = self.dated(found.meta);
        if is_head || !at.as_ref().starts_with("packs") {
            return Ok(found);
        }
        self.gets.fetch_add(1, Ordering::SeqCst);
        let meta = found.meta.clone();
        let range = found.range.clone();
        let attributes = found.attributes.clone();
        let mut bytes = found.bytes().await?.to_vec();
        match fault {
            Fault::Truncates => bytes.truncate(bytes.len() / 2),
            Fault::Corrupts => bytes[40] ^= 1,
            Fault::Swells => bytes.resize(CHUNK * 2, 0),
            Fault::Swaps => bytes = b"another pack".to_vec(),
            _ => {}
        }
        let parts = match fault {
            Fault::Trickles(_) => bytes.chunks(1).map(Bytes::copy_from_slice).collect(),
            _ => vec![Bytes::from(bytes)],
        };
        let slowly = futures_util::stream::iter(parts).then(move |part| async move {
            if let Fault::Trickles(seconds) = fault {
                tokio::time::sleep(Duration::from_secs(seconds)).await;
            }
            Ok(part)
        });
        let payload = GetResultPayload::Stream(slowly.boxed());
        found = GetResult { payload, meta, range, attributes, extensions: Default::default() };
        Ok(found)
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let deletions = self.deletions.clone();
        let held = locations.then(move |at| {
            let deletions = deletions.clone();
            async move {
                deletions.acquire().await.unwrap().forget();
                at
            }
        });
        self.objects.delete_stream(held.boxed())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed: Vec<_> = futures_util::FutureExt::now_or_never(self.objects.list(prefix).collect()).unwrap();
        let dated: Vec<_> = listed.into_iter().map(|found: Result<_>| found.map(|meta| self.dated(meta))).collect();
        futures_util::stream::iter(dated).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}
