//! `cp` in both directions.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::server::{Server, noise, text};

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn remote_path(server: &Server, path: &str) -> String {
    format!("{}:{path}", server.sandbox())
}

#[test]
fn a_directory_survives_a_round_trip() {
    let server = Server::shared();
    let dir = TempDir::new().unwrap();
    let (source, back) = (dir.path().join("source"), dir.path().join("back"));
    fs::create_dir_all(source.join("sub/empty")).unwrap();
    fs::write(source.join("big"), noise(2_000_000)).unwrap();
    fs::write(source.join("nothing"), "").unwrap();
    fs::write(source.join("sub/nä me?&#%"), "odd").unwrap();
    fs::set_permissions(source.join("sub/nä me?&#%"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../big", source.join("sub/link")).unwrap();
    symlink("/nowhere", source.join("dangling")).unwrap();
    server.ok(&["cp", path(&source), &remote_path(&server, "/cp/one")]);
    server.ok(&["cp", &remote_path(&server, "/cp/one"), path(&back)]);
    assert!(fs::read(back.join("big")).unwrap() == noise(2_000_000));
    assert_eq!(fs::read(back.join("nothing")).unwrap(), b"");
    assert_eq!(fs::read(back.join("sub/nä me?&#%")).unwrap(), b"odd");
    assert_eq!(fs::metadata(back.join("sub/nä me?&#%")).unwrap().permissions().mode() & 0o7777, 0o750);
    assert!(back.join("sub/empty").is_dir());
    assert_eq!(fs::read_link(back.join("sub/link")).unwrap(), Path::new("../big"));
    assert_eq!(fs::read_link(back.join("dangling")).unwrap(), Path::new("/nowhere"));
    // Copy over existing files, and into an existing directory: once the directory itself, once its contents.
    server.ok(&["cp", &format!("{}/.", path(&source)), &remote_path(&server, "/cp/one")]);
    server.ok(&["cp", path(&source), &remote_path(&server, "/cp/one/")]);
    let listed = server.ok(&["exec", server.sandbox(), "ls", "/cp/one"]);
    assert_eq!(listed, "big\ndangling\nnothing\nsource\nsub\n");
    server.ok(&["cp", &remote_path(&server, "/cp/one/sub/."), path(&back)]);
    assert!(back.join("nä me?&#%").exists() && back.join("empty").is_dir());
}

#[test]
fn a_file_is_copied_by_name_into_a_directory_or_through_a_pipe() {
    let server = Server::shared();
    let dir = TempDir::new().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "one").unwrap();
    server.ok(&["cp", path(&file), &remote_path(&server, "/cp-file/new/")]);
    server.ok(&["cp", path(&file), &remote_path(&server, "relative")]);
    assert_eq!(server.ok(&["exec", server.sandbox(), "cat", "/cp-file/new/file", "/workspace/relative"]), "oneone");
    server.ok(&["cp", &remote_path(&server, "relative"), path(dir.path())]);
    assert_eq!(fs::read_to_string(dir.path().join("relative")).unwrap(), "one");
    let bytes = noise(300_000);
    let put = server.fed(&["cp", "-", &remote_path(&server, "/cp-file/piped")], &bytes);
    assert_eq!(put.status.code(), Some(0), "{}", text(&put.stderr));
    assert!(server.sandling(&["cp", &remote_path(&server, "/cp-file/piped"), "-"]).stdout == bytes);
    // A device is written to, not replaced.
    server.ok(&["cp", &remote_path(&server, "relative"), "/dev/null"]);
    assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
    for wrong in [
        [path(&file), path(dir.path())],
        [&remote_path(&server, "/a"), &remote_path(&server, "/b")],
        ["/no/such/file", &remote_path(&server, "/a")],
        [&remote_path(&server, "/no/such/file"), path(dir.path())],
        [&remote_path(&server, "/etc"), "-"],
        [path(dir.path()), &remote_path(&server, "/cp-file/new/file")],
        [path(&file), "zzzz:/a"],
    ] {
        server.refused(&["cp", wrong[0], wrong[1]]);
    }
}

#[test]
fn a_sandbox_cannot_write_outside_the_target_directory() {
    let server = Server::shared();
    let dir = TempDir::new().unwrap();
    let (outside, copy) = (dir.path().join("outside"), dir.path().join("copy"));
    fs::create_dir(&outside).unwrap();
    let trap = format!("mkdir -p /trap && ln -sfn {} /trap/way", path(&outside));
    server.ok(&["exec", "-c", &trap, server.sandbox()]);
    server.ok(&["cp", &remote_path(&server, "/trap"), path(&copy)]);
    assert_eq!(fs::read_link(copy.join("way")).unwrap(), outside);
    // The link is now a directory in the sandbox, and the first copy's link is in its way.
    let trap = "rm /trap/way && mkdir /trap/way && echo caught > /trap/way/file";
    server.ok(&["exec", "-c", trap, server.sandbox()]);
    assert!(server.refused(&["cp", &remote_path(&server, "/trap/."), path(&copy)]).contains("in the way"));
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0, "the link was followed");
}
