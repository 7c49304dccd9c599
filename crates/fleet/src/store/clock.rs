//! The store's clock, which all times of its objects are of. A node's own clock may be hours off.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStoreExt};

use super::blobs::{Blobs, CHECK_WITHIN};
use super::error::StoreError;
use crate::clock::{BootClock, Clock};

const CLOCK: &str = "clock";
/// An upload asks for the time once in so long, and counts on by itself meanwhile.
const ASK_EVERY: Duration = Duration::from_secs(3600);

/// A time of the store, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StoreTime(i64);

impl StoreTime {
    /// How long ago an object was written. Zero for one that was written later.
    pub(super) fn age(self, found: &ObjectMeta) -> Duration {
        let age = self.0.saturating_sub(found.last_modified.timestamp_millis());
        Duration::from_millis(u64::try_from(age).unwrap_or_default())
    }
}

/// What the store last said, and when that was by the clock of this node that never jumps.
#[derive(Default)]
pub(super) struct KnownTime(Mutex<Option<(Duration, StoreTime)>>);

impl KnownTime {
    fn estimate(&self) -> Option<StoreTime> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, StoreTime(then)) = known?;
        let since = BootClock.now().saturating_sub(at);
        let passed = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
        (since < ASK_EVERY).then(|| StoreTime(then.saturating_add(passed)))
    }

    fn learn(&self, time: StoreTime) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((BootClock.now(), time));
    }
}

impl Blobs {
    /// Asks the store for its time: writes an object, and reads when it was written.
    pub(super) async fn ask_time(&self) -> Result<StoreTime, StoreError> {
        let path = Path::from(CLOCK);
        let asking = async {
            self.objects.put(&path, bytes::Bytes::from_static(b"the store's time\n").into()).await?;
            self.objects.head(&path).await
        };
        let found = self.within(CHECK_WITHIN, "its time", asking).await?;
        let time = StoreTime(found.last_modified.timestamp_millis());
        self.known_time.learn(time);
        Ok(time)
    }

    /// The store's time, give or take what this node's clock loses in an hour.
    pub(super) async fn time(&self) -> Result<StoreTime, StoreError> {
        match self.known_time.estimate() {
            Some(time) => Ok(time),
            None => self.ask_time().await,
        }
    }
}
