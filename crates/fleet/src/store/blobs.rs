//! Objects in the store: written under the digest of their bytes, and compared with it when they are read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode, PutPayload};
use serde::{Deserialize, Serialize};

use super::chunks::CHUNK;
use super::clock::KnownTime;
use super::error::StoreError;
use super::location::StoreLocation;
use super::manifest::{Scope, StoredSnapshot};
use super::packs::{Pack, PackKey};
use crate::digest::Digest;

/// What zstd and the cipher can add to a chunk that cannot be compressed.
const PACK_ADDS: usize = 64 << 10;
/// A disk of a terabyte has 131,072 chunks, of some 180 bytes each.
const LARGEST_MANIFEST: usize = 64 << 20;
/// Whose store it is, for people who look into it and for nodes of other fleets.
const FLEET: &str = "fleet";
const FORMAT: u32 = 1;
const FLEET_CONTEXT: &str = "sandling fleet store owner 1";
/// A short question, with what the client repeats by itself. Also the longest pause of an object that is read.
const OBJECT_WITHIN: Duration = Duration::from_secs(120);
/// An object that is read, or written to a bucket, however slow the line is.
const SLOW_OBJECT_WITHIN: Duration = Duration::from_secs(3600);
/// A body goes out in parts of this size, so that the connector sees that it makes progress.
const PART: usize = 64 << 10;
pub(super) const CHECK_WITHIN: Duration = Duration::from_secs(10);

/// What kind of object, which is where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Pack,
    Manifest,
}

impl Kind {
    fn path(self, name: &Digest) -> Path {
        let name = name.to_string();
        match self {
            Self::Pack => Path::from_iter(["packs", &name[..2], &name]),
            Self::Manifest => Path::from_iter(["manifests", &name]),
        }
    }

    pub(super) fn directory(self) -> Path {
        Path::from(match self {
            Self::Pack => "packs",
            Self::Manifest => "manifests",
        })
    }

    fn what(self, name: &Digest) -> String {
        let kind = if self == Self::Pack { "pack" } else { "manifest" };
        format!("{kind} {name}")
    }

    fn largest(self) -> usize {
        PACK_ADDS + if self == Self::Pack { CHUNK } else { LARGEST_MANIFEST }
    }
}

#[derive(Serialize, Deserialize)]
struct Owner {
    format: u32,
    /// Derived from the fleet's secret, and tells nothing about it.
    fleet: String,
}

/// The store of one fleet.
pub struct Blobs {
    pub(super) objects: Arc<dyn ObjectStore>,
    shown: String,
    secret: Vec<u8>,
    pub(super) known_time: KnownTime,
    put_within: Duration,
}

impl Blobs {
    /// `secret` is what only the fleet's nodes know.
    pub fn open(location: &StoreLocation, secret: &[u8]) -> Result<Self, StoreError> {
        // The connector gives up a request to a bucket that makes no progress. Nothing does that for a directory.
        let put_within = if location.is_bucket() { SLOW_OBJECT_WITHIN } else { OBJECT_WITHIN };
        Ok(Self { put_within, ..Self::new(location.open()?, &location.url, secret) })
    }

    pub fn new(objects: Arc<dyn ObjectStore>, shown: &str, secret: &[u8]) -> Self {
        let (shown, secret) = (shown.to_owned(), secret.to_owned());
        Self { objects, shown, secret, known_time: KnownTime::default(), put_within: OBJECT_WITHIN }
    }

    pub fn shown(&self) -> &str {
        &self.shown
    }

    pub(super) fn key(&self, scope: &Scope) -> PackKey {
        PackKey::new(&self.secret, scope)
    }

    /// Whether the store answers and is this fleet's. The first node to ask makes it this fleet's.
    pub async fn check(&self) -> Result<(), StoreError> {
        let fleet = blake3::derive_key(FLEET_CONTEXT, &self.secret);
        let own = Owner { format: FORMAT, fleet: blake3::Hash::from(fleet).to_hex()[..32].to_owned() };
        let path = Path::from(FLEET);
        let checking = async {
            match self.objects.get(&path).await {
                Err(object_store::Error::NotFound { .. }) => {
                    let text = serde_json::to_vec_pretty(&own).expect("an owner has only text");
                    self.create(&path, text.into()).await?;
                    // Also after a success: a server that does not know the condition lets the last writer win.
                    self.objects.get(&path).await?.bytes().await
                }
                found => found?.bytes().await,
            }
        };
        let found = self.within(CHECK_WITHIN, "the name of its fleet", checking).await?;
        let owner: Owner = serde_json::from_slice(&found).map_err(|_| StoreError::Foreign(self.shown.clone()))?;
        match owner {
            Owner { format, .. } if format > FORMAT => Err(StoreError::Newer(self.shown.clone())),
            Owner { fleet, .. } if fleet != own.fleet => Err(StoreError::Foreign(self.shown.clone())),
            _ => Ok(()),
        }
    }

    /// Writes an object unless there is one. If the store cannot make sure of that, it is written nevertheless.
    async fn create(&self, path: &Path, payload: PutPayload) -> object_store::Result<()> {
        match self.objects.put_opts(path, payload.clone(), PutMode::Create.into()).await {
            Err(object_store::Error::AlreadyExists { .. }) => Ok(()),
            Err(error) if is_unsupported(&error) => self.objects.put(path, payload).await.map(drop),
            put => put.map(drop),
        }
    }

    pub(super) async fn put(&self, kind: Kind, pack: Pack) -> Result<(), StoreError> {
        self.replace(&kind.path(&pack.name), &kind.what(&pack.name), pack.bytes).await
    }

    /// Writes an object, whether there is one or not.
    pub(super) async fn replace(&self, path: &Path, what: &str, bytes: Vec<u8>) -> Result<(), StoreError> {
        let bytes = Bytes::from(bytes);
        let parts = (0..bytes.len()).step_by(PART).map(|at| bytes.slice(at..bytes.len().min(at + PART)));
        let put = async { self.objects.put(path, parts.collect()).await.map(drop) };
        self.within(self.put_within, what, put).await
    }

    /// What the store says about an object, if it has the object.
    pub(super) async fn head(&self, kind: Kind, name: &Digest) -> Result<Option<ObjectMeta>, StoreError> {
        let head = async {
            match self.objects.head(&kind.path(name)).await {
                Ok(found) => Ok(Some(found)),
                Err(object_store::Error::NotFound { .. }) => Ok(None),
                Err(error) => Err(error),
            }
        };
        self.within(OBJECT_WITHIN, &kind.what(name), head).await
    }

    /// The bytes of an object, which are those that its name says.
    pub(super) async fn get(&self, kind: Kind, name: &Digest) -> Result<Vec<u8>, StoreError> {
        let what = kind.what(name);
        let missing = || StoreError::Missing { store: self.shown.clone(), what: what.clone() };
        let bytes = self.read(&kind.path(name), &what, kind.largest()).await?.ok_or_else(missing)?;
        match Digest::of(&bytes) == *name {
            true => Ok(bytes),
            false => {
                let why = "its bytes are not those that its name says";
                Err(StoreError::Damaged { store: self.shown.clone(), what, why })
            }
        }
    }

    /// The bytes of an object, of which nothing is known yet. Nothing if there is none.
    pub(super) async fn read(&self, path: &Path, what: &str, most: usize) -> Result<Option<Vec<u8>>, StoreError> {
        let (store, what) = (self.shown.clone(), what.to_owned());
        let too_large =
            || StoreError::Damaged { store: store.clone(), what: what.clone(), why: "it is larger than it can be" };
        let get = async {
            let begin = self.objects.get_opts(path, GetOptions::default());
            let found = match self.within(OBJECT_WITHIN, &what, begin).await {
                Err(StoreError::Missing { .. }) => return Ok(None),
                found => found?,
            };
            if found.meta.size > most as u64 {
                return Err(too_large());
            }
            let mut stream = found.into_stream();
            let mut bytes = Vec::new();
            while let Some(part) = self.within(OBJECT_WITHIN, &what, stream.try_next()).await? {
                if bytes.len() + part.len() > most {
                    return Err(too_large());
                }
                bytes.extend_from_slice(&part);
            }
            Ok(Some(bytes))
        };
        let late = || StoreError::TimedOut { store: store.clone(), what: what.clone() };
        tokio::time::timeout(SLOW_OBJECT_WITHIN, get).await.map_err(|_| late())?
    }

    pub(super) async fn delete(&self, path: &Path) -> Result<(), StoreError> {
        let delete = async {
            match self.objects.delete(path).await {
                Err(object_store::Error::NotFound { .. }) => Ok(()),
                deleted => deleted,
            }
        };
        self.within(OBJECT_WITHIN, path.as_ref(), delete).await
    }

    /// Writes a manifest, whose packs are there already, and returns its name.
    pub async fn put_manifest(&self, manifest: &StoredSnapshot) -> Result<Digest, StoreError> {
        let key = self.key(&Scope::Workspace(manifest.workspace.clone()));
        // A longer one could not be read, and a sweep removes nothing while it cannot read a manifest.
        let text = Some(manifest.encode()).filter(|text| text.len() <= LARGEST_MANIFEST);
        let pack = text.and_then(|text| key.pack(&text));
        let pack = pack.ok_or_else(|| StoreError::TooLarge { snapshot: manifest.snapshot.clone() })?;
        let name = pack.name;
        self.put(Kind::Manifest, pack).await?;
        Ok(name)
    }

    pub async fn manifest(&self, workspace: &str, name: &Digest) -> Result<StoredSnapshot, StoreError> {
        let bytes = self.get(Kind::Manifest, name).await?;
        let damaged = |why| StoreError::Damaged { store: self.shown.clone(), what: Kind::Manifest.what(name), why };
        let text = self.key(&Scope::Workspace(workspace.to_owned())).unpack(&bytes, LARGEST_MANIFEST);
        let manifest = StoredSnapshot::decode(&text.map_err(damaged)?)
            .map_err(|source| StoreError::Manifest { store: self.shown.clone(), source })?;
        if manifest.workspace == workspace { Ok(manifest) } else { Err(damaged("it is of another workspace")) }
    }

    pub(super) async fn within<T>(
        &self,
        limit: Duration,
        what: &str,
        doing: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        let (store, what) = (self.shown.clone(), what.to_owned());
        match tokio::time::timeout(limit, doing).await {
            Ok(Ok(done)) => Ok(done),
            Ok(Err(object_store::Error::NotFound { .. })) => Err(StoreError::Missing { store, what }),
            Ok(Err(source)) => Err(StoreError::Unavailable { store, what, source }),
            Err(_) => Err(StoreError::TimedOut { store, what }),
        }
    }
}

/// Whether a store refuses to write an object only if there is none: an S3 server that does not implement the condition, or a
/// file system without hard links.
fn is_unsupported(error: &object_store::Error) -> bool {
    use std::io::ErrorKind;

    use object_store::Error::{NotImplemented, NotSupported};

    let mut causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.any(|cause| match cause.downcast_ref::<std::io::Error>() {
        Some(cause) => matches!(cause.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied),
        None => {
            let refused = cause.downcast_ref::<object_store::Error>();
            matches!(refused, Some(NotImplemented { .. } | NotSupported { .. }))
                || cause.to_string().contains("501 Not Implemented")
        }
    })
}
