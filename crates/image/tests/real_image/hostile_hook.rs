//! A build whose hook attacks the host.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use sandling_image::jail;

const TEST: &str = "a_hostile_hook_reaches_only_the_mirrors";

const HOOK: &str = include_str!("hostile_hook.sh");

const NOBODY: u32 = 65_534;

/// Answers every request, until the test ends.
fn serve() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            // A client may break off at any time.
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    Ok(port)
}

pub fn a_hostile_hook_reaches_only_the_mirrors() -> Result<()> {
    let open = |mode| Permissions::from_mode(mode);
    let home = tempfile::Builder::new().permissions(open(0o755)).tempdir_in("/var/tmp")?;
    let secret = home.path().join("key");
    fs::write(&secret, "secret")?;
    let workspace = tempfile::Builder::new().permissions(open(0o711)).tempdir_in("/var/tmp")?;
    let place = |name: &str| workspace.path().join(name);
    for (directory, mode) in [("jail", 0o755), ("target", 0o777)] {
        fs::create_dir(place(directory))?;
        fs::set_permissions(place(directory), open(mode))?;
    }
    let (mirror, other) = (serve()?, serve()?);
    let hook = HOOK.replace("$MIRROR", &mirror.to_string()).replace("$OTHER", &other.to_string());
    let hook = hook.replace("$WORKSPACE", &workspace.path().display().to_string());
    fs::write(place("hook"), hook.replace("$SECRET", &secret.display().to_string()))?;
    fs::set_permissions(place("hook"), open(0o755))?;

    let spec = serde_json::json!({
        "workspace": workspace.path(),
        "root": place("jail"),
        "mirrors": [{ "scheme": "Http", "host": "127.0.0.1", "port": mirror }],
        "readable": [],
        "variables": [],
    });
    let output = Command::new("/proc/self/exe")
        .args([jail::ARGUMENT, &spec.to_string(), "--mode=root", "--variant=custom", "--format=directory"])
        .arg(format!("--setup-hook={}", place("hook").display()))
        .args(["--skip=update", "bookworm"])
        .arg(place("target/tree"))
        .arg(format!("deb http://127.0.0.1:{mirror} bookworm main"))
        .envs([("OPERATOR_TOKEN", "secret"), ("no_proxy", "127.0.0.1")])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(said.contains("the attack is over"), "{said}");
    let worked: Vec<&str> = said.lines().filter_map(|line| line.strip_prefix("worked: ")).collect();
    ensure!(worked == ["the mirror"], "{worked:?}\n{said}");
    let refusal = format!("E: the build may not connect to 127.0.0.1:{other}, which is not one of its package mirrors");
    ensure!(said.contains(&refusal), "{said}");
    ensure!(!output.status.success(), "the hook's failure was ignored");
    Ok(())
}

/// Runs the other test as nobody, with subordinate ids.
pub fn an_ordinary_users_build_is_jailed_as_well() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        // The other test has shown it.
        return Ok(());
    }
    let place = tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir()?;
    let own = place.path().join("own");
    fs::create_dir(&own)?;
    chown(&own, Some(NOBODY), Some(NOBODY))?;
    let test = place.path().join("test");
    fs::copy(std::env::current_exe()?, &test)?;
    fs::set_permissions(&test, Permissions::from_mode(0o755))?;
    let ids = place.path().join("ids");
    fs::write(&ids, "nobody:2000100000:65536\n")?;
    let script = format!(
        "mount --bind {0} /etc/subuid && mount --bind {0} /etc/subgid && exec setpriv --reuid {NOBODY} --regid {NOBODY} \
         --clear-groups \"$@\"",
        ids.display()
    );
    // A mount namespace of its own hides the host's files.
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script, "sh"])
        .args([Path::new(&test), Path::new(TEST)])
        .env("TMPDIR", &own)
        .output()
        .context("unshare comes with util-linux")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.contains(&format!("test {TEST} ... ok")), "{said}");
    Ok(())
}
