use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::fixture::{Fixture, workspace};

const ONE: Resources = Resources { sandboxes: 1, vcpus: 2, memory_mib: 512, disk_mib: 1024 };

/// Homes that share their quotas.
struct Homes {
    homes: Vec<Home>,
    asked: AtomicU64,
}

struct Home {
    fixture: Fixture,
    used: Mutex<Resources>,
}

struct Others {
    all: Arc<Homes>,
    own: usize,
}

impl OtherHomes for Others {
    fn ask<'a>(&'a self, workspace: &'a WorkspaceName, recall: bool) -> Asking<'a> {
        Box::pin(async move {
            self.all.asked.fetch_add(1, Ordering::Relaxed);
            let mut answers = Vec::new();
            for (at, home) in self.all.homes.iter().enumerate().filter(|(at, _)| *at != self.own) {
                // Answers take their time, so rounds overlap.
                tokio::time::sleep(Duration::from_millis(some_ms())).await;
                let used = || *home.used.lock().unwrap();
                let claimed = home.fixture.admission.claimed(workspace, recall, self.own < at, used);
                answers.push(OtherClaim { has_priority: at < self.own, claimed });
            }
            answers
        })
    }
}

fn some_ms() -> u64 {
    u64::from(crate::random::bytes::<1>()[0] % 5)
}

fn homes(count: usize, change: impl Fn(&mut Quota)) -> Arc<Homes> {
    let make = |_| Home { fixture: Fixture::new(), used: Mutex::default() };
    let all = Arc::new(Homes { homes: (0..count).map(make).collect(), asked: AtomicU64::new(0) });
    for (own, home) in all.homes.iter().enumerate() {
        home.fixture.workspaces.create(&workspace("team")).unwrap();
        home.fixture.admission.change_quota(&workspace("team"), &change).unwrap();
        home.fixture.admission.share_with(Arc::new(Others { all: all.clone(), own }));
    }
    all
}

impl Homes {
    async fn create(&self, at: usize, requested: Resources) -> Result<(), AdmitError> {
        let home = &self.homes[at];
        let in_use = || *home.used.lock().unwrap();
        let mut reservation = home.fixture.admission.admit(&workspace("team"), &requested, in_use)?;
        home.fixture.admission.agree(&mut reservation, in_use).await?;
        let mut used = home.used.lock().unwrap();
        *used = *used + requested;
        Ok(())
    }

    fn remove(&self, at: usize, removed: Resources) {
        let mut used = self.homes[at].used.lock().unwrap();
        *used = *used - removed;
    }

    fn used(&self) -> u64 {
        self.homes.iter().map(|home| home.used.lock().unwrap().sandboxes).sum()
    }

    /// So many creates at once, spread over the homes. Returns how many succeeded.
    async fn create_at_once(self: &Arc<Self>, count: usize) -> usize {
        let creates = (0..count).map(|number| {
            let all = self.clone();
            tokio::spawn(async move { all.create(number % all.homes.len(), ONE).await.is_ok() })
        });
        let creates: Vec<_> = creates.collect();
        let mut succeeded = 0;
        for create in creates {
            succeeded += usize::from(create.await.unwrap());
        }
        succeeded
    }
}

fn refused(answer: Result<(), AdmitError>) -> QuotaRefused {
    match answer {
        Err(AdmitError::Refused(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn homes_use_all_of_a_quota_and_no_more() {
    let all = homes(3, |quota| quota.sandboxes = Some(7));
    for number in 0..7 {
        all.create(number % 3, ONE).await.unwrap();
    }
    for at in 0..3 {
        let why = refused(all.create(at, ONE).await);
        assert_eq!((why.what, why.limit, why.used, why.retry_after), (Resource::Sandboxes, 7, 7, None));
    }
    // What one home frees, any other can use at once.
    all.remove(0, ONE);
    all.create(2, ONE).await.unwrap();
    refused(all.create(1, ONE).await);
    let volume = Resources { disk_mib: 5, ..Resources::default() };
    all.create(1, volume).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn simultaneous_creates_on_several_homes_do_not_exceed_the_quota() {
    for limit in [1, 2, 5, 20] {
        for _ in 0..10 {
            let all = homes(3, |quota| quota.sandboxes = Some(limit));
            let succeeded = all.create_at_once(30).await;
            assert_eq!(all.used(), succeeded as u64);
            assert!(succeeded >= 1 && succeeded <= limit as usize, "{succeeded} of {limit}");
            // What was refused because others asked at the same time fits later.
            while all.used() < u64::from(limit) {
                all.create(all.used() as usize % 3, ONE).await.unwrap();
            }
            refused(all.create(0, ONE).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn far_from_the_limit_most_creates_ask_nobody() {
    let all = homes(3, |quota| {
        quota.sandboxes = Some(10_000);
        (quota.vcpus, quota.memory_mib, quota.disk_mib, quota.creates_per_minute) = (None, None, None, None);
    });
    for number in 0..600 {
        all.create(number % 3, ONE).await.unwrap();
    }
    let asked = all.asked.load(Ordering::Relaxed);
    assert!(asked < 40, "asked {asked} times for 600 creates");
    // What was claimed and is not used does not stop the others.
    for home in &all.homes {
        home.fixture.admission.change_quota(&workspace("team"), |quota| quota.sandboxes = Some(610)).unwrap();
    }
    for _ in 0..10 {
        all.create(1, ONE).await.unwrap();
    }
    refused(all.create(0, ONE).await);
}

#[tokio::test(start_paused = true)]
async fn creates_per_minute_are_those_of_all_homes() {
    let all = homes(2, |quota| quota.creates_per_minute = Some(3));
    for number in 0..3 {
        all.create(number % 2, ONE).await.unwrap();
    }
    for at in 0..2 {
        let why = refused(all.create(at, ONE).await);
        assert_eq!((why.what, why.limit, why.used), (Resource::CreatesPerMinute, 3, 3));
        let wait = why.retry_after.unwrap();
        assert!(wait > Duration::from_secs(50) && wait <= MINUTE, "{wait:?}");
    }
    let four = Resources { sandboxes: 4, ..ONE };
    assert_eq!(refused(all.create(0, four).await).retry_after, None, "it never fits");
}

#[test]
fn creates_count_for_a_minute() {
    let (start, mut creates) = (Instant::now(), RecentCreates::default());
    let after = |seconds: u64| start + Duration::from_secs(seconds);
    creates.add(start, 2);
    creates.add(after(30), 1);
    assert_eq!((creates.count(after(59)), creates.oldest(after(59))), (3, Some(Duration::from_secs(59))));
    assert_eq!(creates.count(after(60)), 1);
    assert_eq!((creates.count(after(90)), creates.oldest(after(90))), (0, None));
}

#[tokio::test(start_paused = true)]
async fn a_create_that_is_given_up_leaves_nothing_behind() {
    let all = homes(2, |quota| quota.sandboxes = Some(1));
    {
        let abandoned = all.create(0, ONE);
        tokio::pin!(abandoned);
        // It has asked, and waits for the answer.
        let soon = tokio::time::timeout(Duration::from_micros(1), &mut abandoned).await;
        if soon.is_ok() {
            all.remove(0, ONE);
        }
    }
    all.create(1, ONE).await.unwrap();
    let claimed = all.homes[0].fixture.admission.claimed(&workspace("team"), true, false, Resources::default);
    assert_eq!((claimed.wanted, claimed.agreed.resources), (None, Resources::default()));
}
