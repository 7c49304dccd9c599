use std::fs;

use sandling_protocol::{Change, ChangeKind, Event, Request, Response, StreamId, ToGuest, WriteMode};

use crate::harness::{Agent, Heard, Host};

fn watch(host: &mut Host, path: &str, recursive: bool) -> StreamId {
    let stream = host.open(Request::Watch { path: path.to_owned(), recursive });
    host.until(stream, |heard| heard.events.iter().any(|event| matches!(event, Event::Connected)));
    stream
}

fn saw(heard: &Heard, path: &str, kind: ChangeKind) -> bool {
    let wanted = Change { path: path.to_owned(), kind };
    heard.events.iter().any(|event| matches!(event, Event::Changed(change) if *change == wanted))
}

#[test]
fn changes_are_reported_as_they_happen() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir(agent.dir().join("d")).unwrap();
    let file = agent.path("d/file");
    let stream = watch(&mut host, &agent.path("d"), false);
    fs::write(&file, "x").unwrap();
    host.until(stream, |heard| saw(heard, &file, ChangeKind::Created) && saw(heard, &file, ChangeKind::Modified));
    fs::rename(&file, agent.path("d/other")).unwrap();
    let other = agent.path("d/other");
    host.until(stream, |heard| saw(heard, &file, ChangeKind::Renamed) && saw(heard, &other, ChangeKind::Created));
    fs::remove_file(&other).unwrap();
    host.until(stream, |heard| saw(heard, &other, ChangeKind::Removed));
    host.say(&ToGuest::Cancel { stream }, b"");
    assert_eq!(host.shell("echo on").out(), "on\n");
}

#[test]
fn an_upload_is_a_change_of_its_target_alone() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir(agent.dir().join("d")).unwrap();
    let file = agent.path("d/file");
    let stream = watch(&mut host, &agent.path("d"), false);
    let upload = |host: &mut Host, bytes: &[u8]| {
        let request = Request::WriteFile {
            path: file.clone(),
            write: WriteMode::Replace,
            mode: None,
            user: None,
            metadata: Default::default(),
        };
        let stream = host.open(request);
        host.data(stream, bytes);
        host.finish(stream);
        host.end(stream).response();
    };
    upload(&mut host, b"one");
    host.until(stream, |heard| saw(heard, &file, ChangeKind::Modified));
    let kind_of = |event: &Event| match event {
        Event::Changed(change) if change.path == file => Some(change.kind),
        _ => None,
    };
    let of_new: Vec<ChangeKind> = host.peek(stream).events.iter().filter_map(kind_of).collect();
    assert_eq!(of_new, [ChangeKind::Created, ChangeKind::Attributes, ChangeKind::Modified]);
    upload(&mut host, b"two");
    let written = Change { path: file.clone(), kind: ChangeKind::Modified };
    let writes =
        |heard: &Heard| heard.events.iter().filter(|e| matches!(e, Event::Changed(c) if *c == written)).count();
    host.until(stream, |heard| writes(heard) >= 2);
    let heard = host.peek(stream);
    let of_others = |event: &&Event| matches!(event, Event::Changed(change) if change.path != file);
    let others: Vec<_> = heard.events.iter().filter(of_others).collect();
    assert!(others.is_empty(), "{others:?}");
}

#[test]
fn new_directories_are_watched_too() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir_all(agent.dir().join("d/old")).unwrap();
    let stream = watch(&mut host, &agent.path("d"), true);
    fs::write(agent.path("d/old/f"), "").unwrap();
    let old = agent.path("d/old/f");
    host.until(stream, |heard| saw(heard, &old, ChangeKind::Created));
    fs::create_dir_all(agent.dir().join("d/new/deep")).unwrap();
    let deep = agent.path("d/new/deep");
    host.until(stream, |heard| saw(heard, &deep, ChangeKind::Created));
    fs::write(agent.path("d/new/deep/f"), "").unwrap();
    let file = agent.path("d/new/deep/f");
    host.until(stream, |heard| saw(heard, &file, ChangeKind::Created));
}

#[test]
fn a_watch_ends_when_its_path_is_removed() {
    let agent = Agent::start();
    let mut host = agent.connect();
    fs::create_dir(agent.dir().join("d")).unwrap();
    let stream = watch(&mut host, &agent.path("d"), false);
    fs::remove_dir(agent.dir().join("d")).unwrap();
    let heard = host.end(stream);
    assert!(saw(&heard, &agent.path("d"), ChangeKind::Removed));
    assert!(matches!(heard.response(), Response::Done));
}

#[test]
fn a_missing_path_cannot_be_watched() {
    let agent = Agent::start();
    let missing = Request::Watch { path: agent.path("none"), recursive: true };
    agent.connect().ask(missing).failure();
}
