//! Bakes of other sizes: a create of another shape does not wait for one, requests for one shape share it, and a create
//! that is refused makes none.

use std::path::{Path, PathBuf};

use sandling_engine::{CreateError, CreateSpec, Engine, EngineConfig};

use crate::harness::{chain, config, engine, eventually, spec, templates};

/// The bakes of templates that have this much memory. They are removed at the end, because all tests share them.
struct OddSize(u32);

impl OddSize {
    fn new(memory_mib: u32) -> Self {
        let size = Self(memory_mib);
        size.remove();
        size
    }

    fn bakes(&self) -> Vec<PathBuf> {
        let images = std::fs::read_dir(templates().join("images")).unwrap().flatten();
        let bakes = images.flat_map(|image| std::fs::read_dir(image.path().join("baked")).into_iter().flatten());
        let part = format!("-{}m-", self.0);
        bakes.flatten().map(|bake| bake.path()).filter(|path| path.to_string_lossy().contains(&part)).collect()
    }

    fn remove(&self) {
        self.bakes().iter().for_each(|bake| std::fs::remove_dir_all(bake).unwrap());
    }

    fn spec(&self, workspace: &str) -> CreateSpec {
        CreateSpec { memory_mib: Some(self.0), workspace: workspace.to_owned(), ..spec("base") }
    }
}

impl Drop for OddSize {
    fn drop(&mut self) {
        self.remove();
    }
}

/// How many bakes are being made.
fn baking(home: &Path) -> usize {
    let machines = std::fs::read_dir(home.join("sandboxes")).unwrap().flatten();
    machines.filter(|entry| entry.file_name().to_string_lossy().starts_with("bake-")).count()
}

#[tokio::test]
async fn a_create_does_not_wait_for_the_bake_of_another_workspace() {
    let size = OddSize::new(291);
    let world = engine().await;
    let home = world.home.path().to_owned();
    let create = |spec: CreateSpec| {
        let engine = world.engine.clone();
        tokio::spawn(async move { engine.create(spec).await })
    };
    let odd = create(size.spec("odd"));
    eventually("the bake", || baking(&home) == 1).await;
    let same = create(size.spec("same"));
    let usual = world.engine.create(CreateSpec { workspace: "usual".to_owned(), ..spec("base") }).await;
    usual.unwrap_or_else(|error| panic!("{}", chain(&error)));
    assert_eq!(baking(&home), 1, "two requests for one shape share a bake, and the usual size waited for it");
    assert!(!odd.is_finished() && !same.is_finished() && size.bakes().is_empty());
    for made in [odd, same] {
        let made = made.await.unwrap().unwrap_or_else(|error| panic!("{}", chain(&error)));
        assert_eq!(made.info().memory_mib, 291);
    }
    assert_eq!(size.bakes().len(), 1);
    assert!(world.engine.machines().stored_mib("odd") > 0, "it counts against the workspace that asked first");
    assert_eq!(world.engine.machines().stored_mib("same"), 0);
    world.close().await;
}

#[tokio::test]
async fn a_create_that_is_refused_leaves_no_bake() {
    let size = OddSize::new(293);
    let home = tempfile::TempDir::new().unwrap();
    let short = EngineConfig { available_memory_mib: || Some(10), ..config(&home) };
    let engine = Engine::open(short).await.unwrap();
    let refused = engine.create(size.spec("default")).await;
    assert!(matches!(refused, Err(CreateError::NoMemory { .. })), "{:?}", refused.err());
    let too_large = CreateSpec { disk_mib: Some(2_000_000), ..size.spec("default") };
    assert!(matches!(engine.create(too_large).await, Err(CreateError::OutOfRange { .. })));
    let beyond_the_host = CreateSpec { disk_mib: Some(1024 * 1024), ..size.spec("default") };
    let refused = engine.create(beyond_the_host).await;
    assert!(matches!(refused, Err(CreateError::NoSpace { .. })), "{:?}", refused.err());
    assert!(size.bakes().is_empty());
    engine.close().await;
}
