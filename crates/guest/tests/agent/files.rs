use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use sandling_protocol::{Entry, EntryKind, FailureKind, Request, Response, ToGuest, TreeEntry, WINDOW, WriteMode};

use crate::harness::{Agent, Heard, Host, wait_for};

fn write(host: &mut Host, path: &str, how: WriteMode, mode: Option<u32>, bytes: &[u8]) -> Heard {
    let request =
        Request::WriteFile { path: path.to_owned(), write: how, mode, user: None, metadata: Default::default() };
    let stream = host.open(request);
    let mut sent = 0;
    for block in bytes.chunks(32 * 1024) {
        host.until(stream, |heard| {
            heard.outcome.is_some() || sent + block.len() as u64 <= WINDOW as u64 + heard.credit
        });
        host.data(stream, block);
        sent += block.len() as u64;
    }
    host.finish(stream);
    host.end(stream)
}

fn read(host: &mut Host, path: &str) -> Heard {
    host.ask(Request::ReadFile { path: path.to_owned(), offset: 0, length: None })
}

#[test]
fn large_files_of_any_bytes_go_both_ways() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let path = agent.path("new/dirs/file");
    let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let written = write(&mut host, &path, WriteMode::Replace, None, &bytes).response();
    assert!(matches!(written, Response::Written { bytes: 5_000_000 }));
    let heard = read(&mut host, &path);
    assert_eq!(heard.bytes, bytes);
    assert!(matches!(heard.response(), Response::Read { bytes: 5_000_000, size: 5_000_000 }));
    let part = host.ask(Request::ReadFile { path, offset: 4_999_990, length: Some(4) });
    assert_eq!(part.bytes, bytes[4_999_990..4_999_994]);
}

#[test]
fn replacing_keeps_mode_and_link_and_leaves_no_temporary_file() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let dir = agent.dir().join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("real"), "old").unwrap();
    fs::set_permissions(dir.join("real"), fs::Permissions::from_mode(0o751)).unwrap();
    symlink("real", dir.join("link")).unwrap();
    write(&mut host, &agent.path("d/link"), WriteMode::Replace, None, b"new").response();
    assert_eq!(fs::read_to_string(dir.join("real")).unwrap(), "new");
    assert!(dir.join("link").is_symlink());
    assert_eq!(fs::metadata(dir.join("real")).unwrap().mode() & 0o7777, 0o751);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 2);
    write(&mut host, &agent.path("d/real"), WriteMode::Replace, Some(0o600), b"x").response();
    assert_eq!(fs::metadata(dir.join("real")).unwrap().mode() & 0o7777, 0o600);
}

#[test]
fn appending_appends_and_creating_refuses_what_exists() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let path = agent.path("file");
    write(&mut host, &path, WriteMode::Append, None, b"a").response();
    write(&mut host, &path, WriteMode::Append, None, b"b").response();
    assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
    let refused = write(&mut host, &path, WriteMode::CreateNew, None, b"c").failure();
    assert_eq!(refused.kind, FailureKind::AlreadyExists);
    write(&mut host, &agent.path("fresh"), WriteMode::CreateNew, None, b"c").response();
    assert_eq!(fs::read_to_string(agent.path("fresh")).unwrap(), "c");
}

#[test]
fn an_upload_that_is_broken_off_leaves_no_trace() {
    let agent = Agent::start();
    let dir = agent.dir().join("d");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("log"), "before").unwrap();
    for how in [WriteMode::Replace, WriteMode::Append] {
        let mut host = agent.connect();
        let request = Request::WriteFile {
            path: agent.path("d/log"),
            write: how,
            mode: None,
            user: None,
            metadata: Default::default(),
        };
        let stream = host.open(request);
        host.data(stream, b"half");
        wait_for(|| open_files(&agent, &dir) == 1);
        host.say(&ToGuest::Cancel { stream }, b"");
        wait_for(|| open_files(&agent, &dir) == 0);
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        assert_eq!(fs::read_to_string(dir.join("log")).unwrap(), "before");
    }
}

#[test]
fn an_upload_ends_with_its_session() {
    let agent = Agent::start();
    let dir = agent.dir().join("d");
    fs::create_dir(&dir).unwrap();
    let mut host = agent.connect();
    let request = Request::WriteFile {
        path: agent.path("d/x"),
        write: WriteMode::Replace,
        mode: None,
        user: None,
        metadata: Default::default(),
    };
    let stream = host.open(request);
    host.data(stream, b"half");
    wait_for(|| open_files(&agent, &dir) == 1);
    drop(host);
    wait_for(|| open_files(&agent, &dir) == 0);
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
}

/// How many files in `dir`, named or not, the agent has open.
fn open_files(agent: &Agent, dir: &Path) -> usize {
    let fds = fs::read_dir(format!("/proc/{}/fd", agent.pid())).unwrap();
    fds.flatten().filter(|fd| fs::read_link(fd.path()).is_ok_and(|link| link.starts_with(dir))).count()
}

#[test]
fn overwriting_keeps_the_inode_and_its_hard_links() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let (path, link) = (agent.path("file"), agent.path("link"));
    fs::write(&path, "a long text").unwrap();
    fs::hard_link(&path, &link).unwrap();
    for bytes in [&b"short"[..], &[b'x'; 300_000], b""] {
        write(&mut host, &path, WriteMode::Replace, None, bytes).response();
        assert_eq!(fs::read(&link).unwrap(), bytes);
    }
    write(&mut host, &path, WriteMode::Replace, Some(0o640), b"y").response();
    assert_eq!(fs::metadata(&link).unwrap().permissions().mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(&link).unwrap().ino(), fs::metadata(&path).unwrap().ino());
}

#[test]
fn a_program_that_runs_can_be_replaced() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let path = agent.path("program");
    fs::copy("/bin/sleep", &path).unwrap();
    let mut running = std::process::Command::new(&path).arg("1000").spawn().unwrap();
    write(&mut host, &path, WriteMode::Replace, None, b"new").response();
    running.kill().unwrap();
    running.wait().unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    assert_eq!(fs::read_dir(agent.dir()).unwrap().filter(|e| is_part(e.as_ref().unwrap())).count(), 0);
}

fn is_part(entry: &fs::DirEntry) -> bool {
    entry.file_name().to_string_lossy().ends_with(".part")
}

#[test]
fn devices_are_written_to_and_not_replaced() {
    let agent = Agent::start();
    let mut host = agent.connect();
    write(&mut host, "/dev/null", WriteMode::Replace, None, b"gone").response();
    assert!(!fs::metadata("/dev/null").unwrap().is_file());
}

#[test]
fn listings_go_as_deep_as_asked_and_name_links() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir_all(agent.dir().join("d/sub/deep")).unwrap();
    fs::write(agent.dir().join("d/a"), "12345").unwrap();
    symlink("nowhere", agent.dir().join("d/link")).unwrap();
    let names = |heard: &Heard| -> Vec<Entry> {
        heard
            .entries
            .split(|b| *b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| serde_json::from_slice(l).unwrap())
            .collect()
    };
    let one = host.ask(Request::ListDir { path: agent.path("d"), depth: 1 });
    let entries = names(&one);
    let shown: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.size)).collect();
    assert_eq!(shown[0], ("a", EntryKind::File, 5));
    assert_eq!((shown[1].0, shown[1].1, entries[1].target.as_deref()), ("link", EntryKind::Symlink, Some("nowhere")));
    assert_eq!((shown[2].0, shown[2].1, shown.len()), ("sub", EntryKind::Directory, 3));
    assert!(matches!(one.response(), Response::Listed { entries: 3 }));
    let two = host.ask(Request::ListDir { path: agent.path("d"), depth: 2 });
    assert_eq!(names(&two).len(), 4);
    let file = host.ask(Request::ListDir { path: agent.path("d/a"), depth: 1 }).failure();
    assert_eq!(file.kind, FailureKind::NotADirectory);
}

#[test]
fn a_huge_listing_is_complete_under_flow_control() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir(agent.dir().join("many")).unwrap();
    for i in 0..5000 {
        fs::write(agent.dir().join(format!("many/{i}")), "").unwrap();
    }
    let heard = host.ask(Request::ListDir { path: agent.path("many"), depth: 1 });
    assert!(heard.entries.len() > WINDOW);
    assert_eq!(heard.entries.iter().filter(|b| **b == b'\n').count(), 5000);
}

#[test]
fn stat_follows_links_and_reports_broken_ones() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::write(agent.dir().join("real"), "123").unwrap();
    symlink("real", agent.dir().join("link")).unwrap();
    symlink("nowhere", agent.dir().join("dangling")).unwrap();
    let mut stat = |name: &str| host.ask(Request::Stat { path: agent.path(name) });
    let Response::Entry(link) = stat("link").response() else { panic!() };
    assert_eq!((link.kind, link.size, link.target.as_deref()), (EntryKind::File, 3, Some("real")));
    let Response::Entry(dangling) = stat("dangling").response() else { panic!() };
    assert_eq!(dangling.kind, EntryKind::Symlink);
    assert_eq!(stat("none").failure().kind, FailureKind::NotFound);
}

#[test]
fn directories_are_made_moved_changed_and_removed() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let path = |name: &str| agent.path(name);
    let mut make =
        |name: &str, parents| host.ask(Request::MakeDir { path: path(name), mode: Some(0o700), parents, user: None });
    assert_eq!(make("a/b", false).failure().kind, FailureKind::NotFound);
    make("a/b", true).response();
    make("a/b", true).response();
    assert_eq!(make("a/b", false).failure().kind, FailureKind::AlreadyExists);
    assert_eq!(fs::metadata(path("a/b")).unwrap().mode() & 0o7777, 0o700);
    fs::write(path("a/b/f"), "x").unwrap();
    host.ask(Request::Move { from: path("a/b"), to: path("c/d") }).response();
    assert_eq!(fs::read_to_string(path("c/d/f")).unwrap(), "x");
    host.ask(Request::Chmod { path: path("c/d/f"), mode: 0o640 }).response();
    assert_eq!(fs::metadata(path("c/d/f")).unwrap().mode() & 0o7777, 0o640);
    let full = host.ask(Request::Remove { path: path("c"), recursive: false }).failure();
    assert_eq!(full.kind, FailureKind::NotEmpty);
    host.ask(Request::Remove { path: path("c"), recursive: true }).response();
    assert!(!agent.dir().join("c").exists());
    assert_eq!(host.ask(Request::Remove { path: path("c"), recursive: true }).failure().kind, FailureKind::NotFound);
    let root = host.ask(Request::Remove { path: "/".to_owned(), recursive: true }).failure();
    assert_eq!(root.kind, FailureKind::Invalid);
}

#[test]
fn a_move_between_file_systems_copies() {
    let agent = Agent::start();
    let here = fs::metadata(agent.dir()).unwrap().dev();
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return crate::harness::skip("there is no /dev/shm");
    };
    if fs::metadata(other.path()).unwrap().dev() == here {
        return crate::harness::skip("/dev/shm is not another file system");
    }
    fs::create_dir(agent.dir().join("t")).unwrap();
    fs::write(agent.dir().join("t/f"), "x").unwrap();
    let to = other.path().join("t").to_str().unwrap().to_owned();
    agent.connect().ask(Request::Move { from: agent.path("t"), to: to.clone() }).response();
    assert_eq!(fs::read_to_string(format!("{to}/f")).unwrap(), "x");
    assert!(!agent.dir().join("t").exists());
}

#[test]
fn bad_paths_are_refused() {
    let agent = Agent::start();
    let mut host = agent.connect();
    for path in ["relative", "", "/a\0b"] {
        assert_eq!(read(&mut host, path).failure().kind, FailureKind::Invalid);
    }
    assert_eq!(read(&mut host, "/").failure().kind, FailureKind::IsADirectory);
    let directory = write(&mut host, "/tmp", WriteMode::Replace, None, b"").failure();
    assert_eq!(directory.kind, FailureKind::IsADirectory);
}

#[test]
fn metadata_is_stored_with_a_file_and_replaced_as_a_whole() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::write(agent.path("f"), "x").unwrap();
    if rustix::fs::setxattr(agent.path("f"), "user.other", b"kept", rustix::fs::XattrFlags::empty()).is_err() {
        return crate::harness::skip("this file system has no extended attributes");
    }
    let mut write = |pairs: &[(&str, &str)]| {
        let metadata = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let request =
            Request::WriteFile { path: agent.path("f"), write: WriteMode::Replace, mode: None, user: None, metadata };
        let stream = host.open(request);
        host.finish(stream);
        host.end(stream).response();
        match host.ask(Request::Stat { path: agent.path("f") }).response() {
            Response::Entry(entry) => entry.metadata.into_iter().collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        }
    };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(write(&[("a", "1"), ("b", "é")]), [pair("a", "1"), pair("b", "é")]);
    assert_eq!(write(&[("b", "2")]), [pair("b", "2")]);
    assert_eq!(write(&[]), []);
    let mut other = [0; 8];
    assert_eq!(rustix::fs::getxattr(agent.path("f"), "user.other", &mut other).unwrap(), 4);
}

#[test]
fn too_much_data_for_an_upload_fails_it_alone() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let request = Request::WriteFile {
        path: agent.path("f"),
        write: WriteMode::Replace,
        mode: None,
        user: None,
        metadata: Default::default(),
    };
    let stream = host.open(request);
    host.data(stream, &vec![0; WINDOW + 1]);
    assert_eq!(host.end(stream).failure().kind, FailureKind::Invalid);
    assert_eq!(host.shell("echo fine").out(), "fine\n");
    wait_for(|| !agent.dir().join("f").exists());
}

#[test]
fn a_walk_reports_the_metadata_that_differs_between_copies() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let dir = agent.dir().join("tree");
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    fs::create_dir(dir.join("left-out")).unwrap();
    fs::write(dir.join("deep/er/file"), "12345").unwrap();
    fs::write(dir.join("left-out/file"), "").unwrap();
    symlink("deep", dir.join("link")).unwrap();
    let walk = |path: String| Request::Walk { path, skip: vec![agent.path("tree/left-out")] };
    let heard = host.ask(walk(agent.path("tree")));
    let lines = heard.entries.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    let mut found: Vec<TreeEntry> = lines.map(|line| serde_json::from_slice(line).unwrap()).collect();
    found.sort_by(|one, other| one.path.cmp(&other.path));
    let names: Vec<_> = found.iter().map(|entry| entry.path.strip_prefix(dir.to_str().unwrap()).unwrap()).collect();
    assert_eq!(names, ["/deep", "/deep/er", "/deep/er/file", "/link"]);
    let file = fs::metadata(dir.join("deep/er/file")).unwrap();
    assert_eq!((found[2].size, found[2].inode, found[2].kind), (5, file.ino(), EntryKind::File));
    assert_eq!(found[2].changed_unix_nanos, file.ctime() * 1_000_000_000 + file.ctime_nsec());
    assert_eq!(found[3].target.as_deref(), Some("deep"));
    assert_eq!(host.ask(walk(agent.path("tree/link/er/file"))).failure().kind, FailureKind::NotADirectory);
}
