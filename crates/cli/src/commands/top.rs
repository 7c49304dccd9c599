//! `sandling top`.

use std::process::ExitCode;

use sandling_wire::ExecRequest;
use serde::Deserialize;
use serde_json::Value;

use crate::client::{Client, field, read};
use crate::options::Top;
use crate::show;

/// Prints one line per process. It reads /proc, because few images have `ps`. Kernel threads have no command line and are
/// left out, and so is the script itself.
const SCRIPT: &str = r#"
for directory in /proc/[0-9]*; do
    pid=${directory#/proc/}
    [ "$pid" = $$ ] && continue
    command=$(tr '\0\n\t' '   ' <"$directory/cmdline" 2>/dev/null)
    [ -n "$command" ] || continue
    memory= uid=
    while read -r name value _; do
        case $name in VmRSS:) memory=$value ;; Uid:) uid=$value ;; esac
    done 2>/dev/null <"$directory/status"
    read -r line 2>/dev/null <"$directory/stat" || continue
    set -- ${line##*) }
    printf '%s\t%s\t%s\t%s\t%s\n' "$pid" "$uid" "$((${12} + ${13}))" "${memory:-0}" "$command"
done
"#;
/// Ticks of /proc/PID/stat in a second.
const TICKS: f64 = 100.0;

#[derive(Debug, PartialEq)]
struct Process {
    pid: u32,
    uid: u32,
    cpu_seconds: f64,
    memory_bytes: u64,
    command: String,
}

#[derive(Deserialize)]
struct Answer {
    stdout: String,
}

pub async fn top(options: &Top) -> anyhow::Result<ExitCode> {
    let client = Client::require().await?;
    let sandbox = client.sandbox(&options.sandbox).await?;
    let request = ExecRequest::line(SCRIPT.to_owned(), Some(30.0));
    let answer: Value = client.post(&format!("/v1/sandboxes/{sandbox}/exec"), &request).await?;
    if answer["exit_code"] != 0 {
        anyhow::bail!("cannot read the processes of the sandbox: {}", field(&answer, "stderr")?.trim());
    }
    let mut processes: Vec<Process> = read::<Answer>(answer)?.stdout.lines().filter_map(process).collect();
    processes.sort_by(|one, other| other.cpu_seconds.total_cmp(&one.cpu_seconds).then(one.pid.cmp(&other.pid)));
    let mut table = show::table(&["pid", "uid", "cpu time", "memory", "command"]);
    for process in processes {
        table.add_row([
            process.pid.to_string(),
            process.uid.to_string(),
            format!("{:.2} s", process.cpu_seconds),
            show::bytes(process.memory_bytes),
            show::first_line(&process.command),
        ]);
    }
    show::line(table)?;
    Ok(ExitCode::SUCCESS)
}

/// One line of the script's output.
fn process(line: &str) -> Option<Process> {
    let mut fields = line.splitn(5, '\t');
    let mut next = || fields.next();
    Some(Process {
        pid: next()?.parse().ok()?,
        uid: next()?.parse().ok()?,
        cpu_seconds: next()?.parse::<f64>().ok()? / TICKS,
        memory_bytes: next()?.parse::<u64>().ok()? * 1024,
        command: next()?.trim().to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_script_is_a_process() {
        let wanted =
            Process { pid: 7, uid: 0, cpu_seconds: 1.5, memory_bytes: 2048, command: "python3 -c a b".to_owned() };
        assert_eq!(process("7\t0\t150\t2\tpython3 -c a b "), Some(wanted));
        assert_eq!(process("7\t0\t150"), None);
    }

    #[test]
    fn the_script_finds_this_process() {
        let output = std::process::Command::new("sh").args(["-c", SCRIPT]).output().unwrap();
        let processes: Vec<Process> = String::from_utf8_lossy(&output.stdout).lines().filter_map(process).collect();
        let own = processes.iter().find(|process| process.pid == std::process::id()).unwrap();
        assert!(own.memory_bytes > 1_000_000 && !own.command.is_empty(), "{own:?}");
    }
}
