//! One or more messages of every type, with every field set, and the body that goes with each.

use std::collections::BTreeMap;

use sandling_protocol::*;

/// A name, a message and its body.
pub type Sample<T> = (&'static str, T, &'static [u8]);

pub fn to_guest() -> Vec<Sample<ToGuest>> {
    let mut samples: Vec<Sample<ToGuest>> = vec![
        ("hello", ToGuest::Hello { nonce: "00ff".into(), generation: 1 }, b""),
        ("data", ToGuest::Data { stream: 7 }, b"in\0put"),
        ("finish", ToGuest::Finish { stream: 7 }, b""),
        ("credit", ToGuest::Credit { stream: 7, bytes: 65_536 }, b""),
        ("cancel", ToGuest::Cancel { stream: u32::MAX }, b""),
    ];
    let requests = process_requests().into_iter().chain(file_requests()).chain(machine_requests());
    samples.extend(requests.map(|(name, request, body)| (name, ToGuest::Open { stream: 7, request }, body)));
    samples
}

/// What generation 3 added.
pub fn to_guest_3() -> Vec<Sample<ToGuest>> {
    let disk = LentDisk { slot: 63, name: "0123456789abcdef0123456789abcdef".into(), bytes: 1 << 33 };
    vec![("take_disk", ToGuest::Open { stream: 8, request: Request::TakeDisk { upload: 7, disk } }, b"")]
}

fn process_requests() -> Vec<Sample<Request>> {
    let exec = || "exec-1".to_owned();
    let context = || "context-1".to_owned();
    let bare = ExecSpec {
        id: exec(),
        program: Program::Shell("echo hi".into()),
        env: BTreeMap::new(),
        cwd: None,
        user: None,
        timeout_ms: None,
        output_limit: 1 << 20,
        on_limit: OnLimit::Kill,
        stdin: Stdin::Closed,
        terminal: None,
    };
    let argv = ExecSpec {
        program: Program::Argv(vec!["ls".into(), "-l".into()]),
        env: variables(),
        cwd: Some("/workspace".into()),
        user: Some("user".into()),
        timeout_ms: Some(1500),
        on_limit: OnLimit::KeepTail,
        stdin: Stdin::Open,
        terminal: Some(TerminalSize { rows: 24, cols: 80 }),
        ..bare.clone()
    };
    let program = Program::Code { language: Language::Python, args: vec!["x".into()] };
    let code = ExecSpec { program, ..bare.clone() };
    let bare_context =
        ContextSpec { id: context(), language: Language::Node, cwd: None, env: BTreeMap::new(), user: None };
    let (cwd, user) = (Some("/tmp".to_owned()), Some("1000".to_owned()));
    let full_context = ContextSpec { language: Language::Python, cwd, env: variables(), user, ..bare_context.clone() };
    let bare_cell =
        CellSpec { context: context(), timeout_ms: None, output_limit: 1024, env: BTreeMap::new(), typescript: false };
    let full_cell = CellSpec { timeout_ms: Some(3000), env: variables(), ..bare_cell.clone() };
    vec![
        ("warm", Request::Warm { language: Language::Python, imports: vec!["json".into()] }, b""),
        ("settle", Request::Settle { language: Language::Bash }, b""),
        ("run_shell", Request::Run(bare), b""),
        ("run_argv", Request::Run(argv), b""),
        ("run_code", Request::Run(code), b"print(1)\n"),
        ("attach", Request::Attach { exec: exec(), from: 1 << 40 }, b""),
        ("signal", Request::Signal { exec: exec(), signal: 15 }, b""),
        ("resize", Request::Resize { exec: exec(), size: TerminalSize { rows: 50, cols: 132 } }, b""),
        ("list_execs", Request::ListExecs, b""),
        ("forget", Request::Forget { exec: exec() }, b""),
        ("create_context", Request::CreateContext(bare_context), b""),
        ("create_context_full", Request::CreateContext(full_context), b""),
        ("run_cell", Request::RunCell(bare_cell), b"x = 1"),
        ("run_cell_full", Request::RunCell(full_cell), "é".as_bytes()),
        ("interrupt", Request::Interrupt { context: context() }, b""),
        ("restart_context", Request::RestartContext { context: context() }, b""),
        ("close_context", Request::CloseContext { context: context() }, b""),
        ("list_contexts", Request::ListContexts, b""),
    ]
}

fn file_requests() -> Vec<Sample<Request>> {
    let path = || "/a/b é".to_owned();
    let user = || Some("user".to_owned());
    let write = |write, mode, user| Request::WriteFile { path: path(), write, mode, user, metadata: BTreeMap::new() };
    vec![
        ("read_file", Request::ReadFile { path: path(), offset: 5, length: Some(10) }, b""),
        ("read_file_to_end", Request::ReadFile { path: path(), offset: 0, length: None }, b""),
        ("write_file_replace", write(WriteMode::Replace, Some(0o644), user()), b""),
        ("write_file_append", write(WriteMode::Append, None, None), b""),
        ("write_file_create_new", write(WriteMode::CreateNew, None, None), b""),
        ("list_dir", Request::ListDir { path: path(), depth: 2 }, b""),
        ("walk", Request::Walk { path: "/".into(), skip: vec!["/proc".into()] }, b""),
        ("stat", Request::Stat { path: path() }, b""),
        ("make_dir", Request::MakeDir { path: path(), mode: Some(0o755), parents: true, user: user() }, b""),
        ("move", Request::Move { from: path(), to: "/c".into() }, b""),
        ("remove", Request::Remove { path: path(), recursive: true }, b""),
        ("chmod", Request::Chmod { path: path(), mode: 0o600 }, b""),
        ("watch", Request::Watch { path: path(), recursive: true }, b""),
    ]
}

fn machine_requests() -> Vec<Sample<Request>> {
    let identity = Identity {
        unix_nanos: 1_700_000_000_000_000_001,
        entropy: "ab".repeat(32),
        hostname: "sandbox".into(),
        machine_id: "0".repeat(32),
        boot_id: "01234567-89ab-cdef-0123-456789abcdef".into(),
        env: None,
        limits: Limits { pids: None },
    };
    let full = Identity { env: Some(variables()), limits: Limits { pids: Some(512) }, ..identity.clone() };
    vec![
        ("identify", Request::Identify(identity), b""),
        ("identify_full", Request::Identify(full), b""),
        ("add_variables", Request::AddVariables { variables: variables() }, b""),
        ("stand_still", Request::Freeze, b""),
        ("connect", Request::Connect { port: 8080 }, b""),
        ("list_ports", Request::ListPorts, b""),
        ("usage", Request::Usage, b""),
        ("sync", Request::Sync, b""),
        ("grow_disk", Request::GrowDisk { bytes: 8 << 30 }, b""),
        ("mount_volume", Request::MountVolume { slot: 1, path: "/data".into(), read_only: true }, b""),
        ("unmount_volume", Request::UnmountVolume { slot: 1, lost: true }, b""),
    ]
}

pub fn to_host() -> Vec<Sample<ToHost>> {
    let data = |part| ToHost::Data { stream: 7, part, offset: 1 << 33 };
    let mut samples: Vec<Sample<ToHost>> = vec![
        ("hello", ToHost::Hello { nonce: "00ff".into(), generation: 1 }, b""),
        ("credit", ToHost::Credit { stream: 7, bytes: 65_536 }, b""),
        ("data_stdout", data(Part::Stdout), b"out\0put"),
        ("data_stderr", data(Part::Stderr), b"error"),
        ("data_terminal", data(Part::Terminal), b"\x1b[1m"),
        ("data_results", data(Part::Results), b"{\"text/plain\":\"1\"}\n"),
        ("data_value", data(Part::Value), b"{\"text/plain\":\"2\"}\n"),
        ("data_bytes", data(Part::Bytes), &[0, 1, 254, 255]),
        ("data_entries", data(Part::Entries), b"{}\n"),
    ];
    samples.extend(events().into_iter().map(|(name, event, body)| (name, ToHost::Event { stream: 7, event }, body)));
    let end = |(name, outcome, body)| (name, ToHost::End { stream: 7, outcome }, body);
    samples.extend(responses().into_iter().map(|(name, response, body)| end((name, Outcome::Ok(response), body))));
    samples.extend(failures().into_iter().map(|(name, failure, body)| end((name, Outcome::Failed(failure), body))));
    samples
}

fn events() -> Vec<Sample<Event>> {
    let changed = |kind| Event::Changed(Change { path: "/a/b é".into(), kind });
    vec![
        ("event_started", Event::Started { pid: 42, existing: true }, b""),
        ("event_dropped", Event::Dropped { bytes: 1 << 34 }, b""),
        ("event_connected", Event::Connected, b""),
        ("event_created", changed(ChangeKind::Created), b""),
        ("event_modified", changed(ChangeKind::Modified), b""),
        ("event_removed", changed(ChangeKind::Removed), b""),
        ("event_renamed", changed(ChangeKind::Renamed), b""),
        ("event_attributes", changed(ChangeKind::Attributes), b""),
        ("event_overflow", changed(ChangeKind::Overflow), b""),
    ]
}

fn responses() -> Vec<Sample<Response>> {
    let exit = |code, signal, reason| Exit {
        code,
        signal,
        reason,
        duration_ms: 12,
        stdout_bytes: 3,
        stderr_bytes: 4,
        dropped_bytes: 5,
    };
    let exec = |state| ExecInfo {
        id: "exec-1".into(),
        pid: 42,
        command: "echo hi".into(),
        started_unix_ms: 1_700_000_000_000,
        output_bytes: 7,
        state,
    };
    let execs = vec![exec(ExecState::Running), exec(ExecState::Exited(exit(0, None, ExitReason::Exited)))];
    let entry = |kind, target| Entry {
        path: "/a/b".into(),
        name: "b".into(),
        kind,
        size: 9,
        mode: 0o755,
        uid: 1000,
        gid: 100,
        modified_unix_ms: -1,
        target,
        metadata: BTreeMap::new(),
    };
    let context = ContextInfo {
        id: "context-1".into(),
        language: Language::Python,
        pid: 43,
        cells: 2,
        busy: true,
        restarts: 1,
        cwd: "/root".into(),
    };
    let cell =
        |status, error| CellReport { status, number: 3, error, duration_ms: 4, dropped_bytes: 5, restarted: true };
    let traceback = Traceback { name: "ValueError".into(), value: "x".into(), text: "Traceback…\n".into() };
    let usage = Usage {
        memory_total_bytes: 1,
        memory_available_bytes: 2,
        disk_total_bytes: 3,
        disk_available_bytes: 4,
        processes: 5,
        cpu_ms: 6,
        uptime_ms: 7,
    };
    let proof = Proof {
        unix_nanos: 1_700_000_000_000_000_001,
        kernel_reseeded: true,
        interpreters: 2,
        interpreters_reseeded: 2,
        hostname: "sandbox".into(),
    };
    vec![
        ("done", Response::Done, b""),
        ("identified", Response::Identified(proof), b""),
        ("exited", Response::Exited(exit(3, None, ExitReason::Exited)), b""),
        ("exited_signalled", Response::Exited(exit(143, Some(15), ExitReason::Signalled)), b""),
        ("exited_timeout", Response::Exited(exit(137, Some(9), ExitReason::Timeout)), b""),
        ("exited_out_of_memory", Response::Exited(exit(137, Some(9), ExitReason::OutOfMemory)), b""),
        ("exited_output_limit", Response::Exited(exit(137, Some(9), ExitReason::OutputLimit)), b""),
        ("execs", Response::Execs { execs }, b""),
        ("read", Response::Read { bytes: 5, size: 6 }, b""),
        ("written", Response::Written { bytes: 5 }, b""),
        ("entry_file", Response::Entry(entry(EntryKind::File, None)), b""),
        ("entry_directory", Response::Entry(entry(EntryKind::Directory, None)), b""),
        ("entry_symlink", Response::Entry(entry(EntryKind::Symlink, Some("/c".into()))), b""),
        ("entry_other", Response::Entry(entry(EntryKind::Other, None)), b""),
        ("listed", Response::Listed { entries: 11 }, b""),
        ("context", Response::Context(context.clone()), b""),
        ("contexts", Response::Contexts { contexts: vec![context] }, b""),
        ("cell_ok", Response::Cell(cell(CellStatus::Ok, None)), b""),
        ("cell_error", Response::Cell(cell(CellStatus::Error, Some(traceback))), b""),
        ("cell_interrupted", Response::Cell(cell(CellStatus::Interrupted, None)), b""),
        ("cell_timeout", Response::Cell(cell(CellStatus::Timeout, None)), b""),
        ("cell_out_of_memory", Response::Cell(cell(CellStatus::OutOfMemory, None)), b""),
        ("cell_output_limit", Response::Cell(cell(CellStatus::OutputLimit, None)), b""),
        ("cell_died", Response::Cell(cell(CellStatus::Died, None)), b""),
        ("ports", Response::Ports { ports: vec![22, 8080] }, b""),
        ("usage", Response::Usage(usage), b""),
    ]
}

fn failures() -> Vec<Sample<Failure>> {
    let kinds = [
        ("failed_not_found", FailureKind::NotFound),
        ("failed_already_exists", FailureKind::AlreadyExists),
        ("failed_permission_denied", FailureKind::PermissionDenied),
        ("failed_not_a_directory", FailureKind::NotADirectory),
        ("failed_is_a_directory", FailureKind::IsADirectory),
        ("failed_not_empty", FailureKind::NotEmpty),
        ("failed_no_space", FailureKind::NoSpace),
        ("failed_invalid", FailureKind::Invalid),
        ("failed_too_large", FailureKind::TooLarge),
        ("failed_busy", FailureKind::Busy),
        ("failed_unsupported", FailureKind::Unsupported),
        ("failed_refused", FailureKind::Refused),
        ("failed_other", FailureKind::Other),
    ];
    let sample = |(name, kind): (&'static str, _)| -> Sample<Failure> {
        (name, Failure { kind, message: "/a: it failed".into() }, b"")
    };
    kinds.into_iter().map(sample).collect()
}

/// Lines of a walk's [`Part::Entries`].
pub fn tree_entries() -> Vec<(&'static str, TreeEntry)> {
    let entry = |kind, target| TreeEntry {
        path: "/a/b".into(),
        kind,
        size: 9,
        mode: 0o755,
        uid: 1000,
        gid: 100,
        inode: 12,
        changed_unix_nanos: 1_700_000_000_000_000_001,
        modified_unix_seconds: -1,
        target,
    };
    vec![
        ("walked_file", entry(EntryKind::File, None)),
        ("walked_symlink", entry(EntryKind::Symlink, Some("/c".into()))),
    ]
}

fn variables() -> BTreeMap<String, String> {
    BTreeMap::from([("A".to_owned(), "1".to_owned()), ("B".to_owned(), "é\n\"".to_owned())])
}
