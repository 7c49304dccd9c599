//! Snapshots that are carried elsewhere, and snapshots as templates.

use std::path::Path;

use sandling_engine::{CreateSpec, EndReason, Engine, EngineConfig, Home, ImportError, SnapshotInfo, SnapshotSpec};

use crate::fork::{furnish, inspect};
use crate::harness::{config, engine, eventually, launcher, shell, spec, templates};

fn import(engine: &Engine, name: Option<String>, exported: &[u8]) -> Result<SnapshotInfo, ImportError> {
    tokio::task::block_in_place(|| engine.snapshots().import("default", name, exported))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_carried_to_another_home_and_goes_on_there() {
    let here = engine().await;
    let sandbox = here.sandbox().await;
    furnish(&sandbox).await;
    shell(&sandbox, "echo carried > /root/carried").await;
    here.engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
    shell(&sandbox, "echo twice >> /root/carried").await;
    let (snapshot, _) = here
        .engine
        .snapshot(&sandbox, SnapshotSpec { name: Some("mine".to_owned()), ..SnapshotSpec::default() })
        .await
        .unwrap();
    let mut exported = Vec::new();
    here.engine.snapshots().export(&snapshot, &mut exported).unwrap();

    // The same templates: only what the snapshot adds is stored.
    let again = import(&here.engine, None, &exported).unwrap();
    assert_eq!((again.name.as_deref(), &again.digest), (Some("mine"), &snapshot.digest));
    here.engine.snapshots().delete("default", &snapshot.id).await.unwrap();
    sandbox.end(EndReason::Requested).await.unwrap();
    let begun = here.engine.create(CreateSpec { from_snapshot: Some(again.id), ..spec("base") }).await.unwrap();
    inspect(&begun, 1).await;
    assert_eq!(shell(&begun, "cat /root/carried").await.stdout, "carried\ntwice\n");
    here.close().await;

    // No templates at all.
    let elsewhere = tempfile::TempDir::new().unwrap();
    let home = Home::new(elsewhere.path().to_owned());
    let config = EngineConfig { launcher: launcher(), ..EngineConfig::new(home).unwrap() };
    let there = Engine::open(config).await.unwrap();
    for (cut, wrong) in [(10, false), (exported.len() / 2, false), (exported.len() - 1, false), (exported.len(), true)]
    {
        let mut torn = exported[..cut].to_vec();
        if wrong {
            torn[cut / 2] ^= 1;
        }
        let refused = import(&there, None, &torn);
        assert!(matches!(refused, Err(ImportError::Damaged(_) | ImportError::NotOne)), "{cut}: {refused:?}");
    }
    let left = std::fs::read_dir(elsewhere.path().join("snapshots")).unwrap().count();
    assert_eq!(left, 0, "a torn file leaves nothing");
    let imported = import(&there, Some("yours".to_owned()), &exported).unwrap();
    assert_eq!(imported.digest, snapshot.digest);
    let wish = CreateSpec { from_snapshot: Some(imported.id.clone()), ..spec("base") };
    let begun = there.create(wish.clone()).await.unwrap();
    inspect(&begun, 1).await;
    assert_eq!(shell(&begun, "cat /root/carried").await.stdout, "carried\ntwice\n");
    // What stands on it can be saved again, and so on.
    shell(&begun, "echo thrice >> /root/carried").await;
    begun.hibernate().await.unwrap();
    begun.wake().await.unwrap();
    // Its disk is folded like any other's.
    let height = || begun.info().standing.disk.len();
    for _ in height()..12 {
        there.checkpoint(&begun, None).await.unwrap();
    }
    eventually("its disk is folded", || height() < 3).await;
    inspect(&begun, 2).await;
    let (next, _) = there.snapshot(&begun, SnapshotSpec::default()).await.unwrap();
    there.snapshots().delete("default", &imported.id).await.unwrap();
    begun.end(EndReason::Requested).await.unwrap();
    let last = there.create(CreateSpec { from_snapshot: Some(next.id.clone()), ..wish }).await.unwrap();
    assert_eq!(shell(&last, "tail -1 /root/carried").await.stdout, "thrice\n");
    last.end(EndReason::Requested).await.unwrap();
    there.snapshots().delete("default", &next.id).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(elsewhere.path().join("snapshots")).unwrap().flatten().collect();
    assert!(left.is_empty(), "nobody stands on {left:?}");
    there.close().await;
}

#[tokio::test]
async fn a_snapshot_becomes_a_template_and_may_go_itself() {
    let engine = engine().await;
    let sandbox = engine.sandbox().await;
    shell(&sandbox, "echo ready > /root/state").await;
    let (snapshot, _) = engine.engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
    sandbox.end(EndReason::Requested).await.unwrap();
    for taken in ["base", "ubuntu-24.04", "../x", ""] {
        assert!(engine.engine.template_from_snapshot("default", &snapshot, taken, "").is_err(), "{taken:?}");
    }
    engine.engine.template_from_snapshot("default", &snapshot, "warm", "as I like it").unwrap();
    assert!(engine.engine.template_from_snapshot("default", &snapshot, "warm", "").is_err());
    engine.engine.snapshots().delete("default", &snapshot.id).await.unwrap();
    let listed = engine.engine.list_templates("default").unwrap();
    assert!(listed.iter().any(|template| template.name == "warm" && template.description == "as I like it"));
    assert!(engine.engine.list_templates("team").unwrap().iter().all(|template| template.name != "warm"));
    let begun = engine.engine.create(spec("warm")).await.unwrap();
    assert_eq!(begun.info().template, "warm");
    assert_eq!(shell(&begun, "cat /root/state").await.stdout, "ready\n");
    begun.end(EndReason::Requested).await.unwrap();
    engine.engine.remove_template("default", "warm").await.unwrap();
    assert!(engine.engine.create(spec("warm")).await.is_err());
    assert_eq!(std::fs::read_dir(engine.home.path().join("snapshots")).unwrap().count(), 0);
    engine.close().await;
}

/// A built-in template that the tests have besides `base`.
const BUILT: &str = "code-interpreter";

/// The templates of the tests under other names. The other files are shared.
fn renamed_templates(dir: &Path, names: &[(&str, &str)]) {
    for part in ["roots", "kernels", "initrds", "images"] {
        std::os::unix::fs::symlink(templates().join(part), dir.join(part)).unwrap();
    }
    std::fs::create_dir(dir.join("names")).unwrap();
    for (from, to) in names {
        let file = |name: &str| format!("names/{name}.json");
        std::fs::copy(templates().join(file(from)), dir.join(file(to))).unwrap();
    }
}

/// An earlier version may have let users give a template the name that a built-in one got later.
#[tokio::test]
async fn a_workspaces_own_template_is_preferred_to_a_built_in_one_of_its_name() {
    let (home, own_templates) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    renamed_templates(own_templates.path(), &[("base", "base"), (BUILT, BUILT), ("base", "w.team.code-interpreter")]);
    let home_dir = Home::new(home.path().to_owned()).with_templates(own_templates.path().to_owned());
    let engine = Engine::open(EngineConfig { home: home_dir, ..config(&home) }).await.unwrap();
    let listed = |workspace: &str, name: &str| {
        let listed = engine.list_templates(workspace).unwrap().into_iter();
        listed.filter(|template| template.name == name).map(|template| template.built_in).collect::<Vec<_>>()
    };
    let of = |workspace: &str, template: &str| CreateSpec { workspace: workspace.to_owned(), ..spec(template) };

    assert_eq!((listed("team", BUILT), listed("other", BUILT)), (vec![false], vec![true]));
    assert!(engine.built_in("team", BUILT).unwrap().is_none() && engine.built_in("other", BUILT).unwrap().is_some());
    let sandbox = engine.create(of("team", BUILT)).await.unwrap();
    assert_eq!(shell(&sandbox, "command -v node").await.stdout, "", "it is a copy of base");

    shell(&sandbox, "echo own > /root/state").await;
    let (snapshot, _) = engine.snapshot(&sandbox, SnapshotSpec::default()).await.unwrap();
    sandbox.end(EndReason::Requested).await.unwrap();
    engine.template_from_snapshot("team", &snapshot, "screen", "").unwrap();
    let store = rusqlite::Connection::open(home.path().join("sandling.db")).unwrap();
    store.execute("UPDATE snapshot_templates SET name = 'desktop' WHERE name = 'screen'", []).unwrap();
    assert_eq!((listed("team", "desktop"), listed("other", "desktop")), (vec![false], vec![true]));
    let begun = engine.create(of("team", "desktop")).await.unwrap();
    assert_eq!(shell(&begun, "cat /root/state").await.stdout, "own\n");
    begun.end(EndReason::Requested).await.unwrap();

    engine.snapshots().delete("team", &snapshot.id).await.unwrap();
    engine.remove_template("team", "desktop").await.unwrap();
    // Not through the engine, which would remove shared files.
    std::fs::remove_file(own_templates.path().join("names/w.team.code-interpreter.json")).unwrap();
    for name in ["desktop", BUILT] {
        assert_eq!(listed("team", name), [true], "without its own, the workspace has the built-in one");
    }
    engine.close().await;
}
