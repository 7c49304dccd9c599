use sandling_protocol::{Request, Response, Stdin, TerminalSize};

use crate::harness::{Agent, shell};

fn in_terminal(line: &str) -> sandling_protocol::ExecSpec {
    let mut spec = shell(line);
    spec.terminal = Some(TerminalSize { rows: 24, cols: 80 });
    spec.stdin = Stdin::Open;
    spec
}

#[test]
fn a_command_gets_a_terminal_of_the_given_size() {
    let agent = Agent::start();
    let heard = agent.connect().run(in_terminal("test -t 0 && test -t 1 && test -t 2 && stty size; echo $TERM"));
    assert_eq!(String::from_utf8_lossy(&heard.terminal), "24 80\r\nxterm-256color\r\n");
    assert_eq!(heard.exit().code, 0);
}

#[test]
fn all_output_is_sent_before_the_end() {
    let agent = Agent::start();
    let mut host = agent.connect();
    for _ in 0..20 {
        let heard = host.run(in_terminal("seq 1 2000"));
        assert!(heard.terminal.ends_with(b"\r\n2000\r\n"), "{}", heard.terminal.len());
    }
}

#[test]
fn a_resize_and_key_presses_arrive() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let spec = in_terminal("read x; stty size; echo got $x; read y; echo end");
    let exec = spec.id.clone();
    let stream = host.open(Request::Run(spec));
    host.until(stream, |heard| heard.pid().is_some());
    let size = TerminalSize { rows: 50, cols: 132 };
    assert!(matches!(host.ask(Request::Resize { exec, size }).response(), Response::Done));
    host.data(stream, b"hello\r");
    host.until(stream, |heard| String::from_utf8_lossy(&heard.terminal).contains("50 132\r\ngot hello"));
    // A terminal's end-of-file character.
    host.finish(stream);
    assert!(host.end(stream).terminal.ends_with(b"end\r\n"));
}

#[test]
fn an_interrupt_key_interrupts() {
    let agent = Agent::start();
    let mut host = agent.connect();
    // Not a shell: bash ignores an interrupt that comes when its child has just ended, or when it is about to execute
    // another program. `cat` runs when it repeats what the terminal has echoed.
    let stream = host.open(Request::Run(in_terminal("exec cat")));
    host.data(stream, b"ready\r");
    host.until(stream, |heard| heard.terminal.windows(5).filter(|bytes| bytes == b"ready").count() == 2);
    host.data(stream, b"\x03");
    assert_eq!(host.end(stream).exit().signal, Some(2));
}

#[test]
fn a_command_without_a_terminal_cannot_be_resized() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let spec = shell("true");
    let exec = spec.id.clone();
    host.run(spec).exit();
    host.ask(Request::Resize { exec, size: TerminalSize { rows: 1, cols: 1 } }).failure();
}
