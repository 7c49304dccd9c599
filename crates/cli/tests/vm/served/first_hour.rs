//! What a new user tries in the first hour: names, looking around, and running files in place.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::server::{PATIENCE, Server, text};

#[test]
fn sandboxes_have_names_and_can_be_looked_at() {
    let server = Server::shared();
    let made = server.json(&["create", "-t", "base", "--json", "--name", "web", "--memory", "512m", "--ttl", "10m"]);
    let id = made["id"].as_str().unwrap();
    assert_eq!((&made["name"], &made["memory_mb"]), (&"web".into(), &512.into()));
    assert!(server.refused(&["create", "-t", "base", "--name", "web"]).contains("belongs to sandbox"));
    assert!(server.refused(&["create", "-t", "base", "--name", "1 2"]).contains("starts with a letter"));
    assert!(server.ok(&["ps"]).contains("web"));
    let missing = server.sandling(&["exec", "web", "nosuch", "-x"]);
    assert_eq!(
        (missing.status.code(), text(&missing.stderr)),
        (Some(127), "sandling: nosuch: command not found\n".into())
    );

    let exec = server.ok(&["exec", "--detach", "-c", "echo begun; exec sleep 1234", "web"]);
    let exec = exec.trim();
    let listed = server.ok(&["execs", "web"]);
    assert!(listed.contains(exec) && listed.contains("running") && listed.contains("sleep 1234"), "{listed}");
    let deadline = Instant::now() + PATIENCE;
    while server.ok(&["logs", "--exec", &exec[..8], "web"]) != "begun\n" {
        assert!(Instant::now() < deadline, "the command printed nothing");
    }
    assert!(server.refused(&["logs", "--exec", "zzz", "web"]).contains("sandling execs"));
    let processes = server.ok(&["top", "web"]);
    assert!(processes.contains("sleep 1234"), "{processes}");
    let usage = server.json(&["stats", "--json", "web"]);
    assert!(usage[id]["guest"]["processes"].as_u64().unwrap() > 1, "{usage}");
    assert!(server.ok(&["stats"]).contains(&id[..8]));

    // A directory that is newer than the checkpoint is all added.
    server.ok(&["checkpoint", "create", "--name", "before", "web"]);
    server.ok(&["exec", "-c", "mkdir /root/new && echo 1 >/root/new/file", "web"]);
    assert_eq!(server.ok(&["diff", "web@before", "--path", "/root/new"]), "A file\n");
    server.refused(&["diff", "web@before", "--path", "/root/never"]);
    server.ok(&["exec", "-c", "mkdir here && echo 1 >here/file", "web"]);
    assert_eq!(server.ok(&["diff", "web@before", "--path", "here"]), "A file\n");
    assert!(server.refused(&["diff", "web"]).contains("sandling timeline"));

    let snapshot = server.ok(&["snapshot", "create", "web", "--name", "golden"]);
    assert!(server.refused(&["snapshot", "create", "web", "--name", "golden"]).contains("belongs to snapshot"));
    let copy = server.ok(&["create", "--from-snapshot", "golden", "--name", "copy"]);
    assert_eq!(server.ok(&["exec", "copy", "cat", "/root/new/file"]), "1\n");
    let fork = server.json(&["fork", "--json", "copy"]);
    assert_eq!(fork["children"][0]["name"], serde_json::Value::Null, "a fork has no name");
    server.ok(&["rm", "copy", fork["children"][0]["id"].as_str().unwrap()]);
    let told = server.refused(&["exec", "copy", "true"]);
    assert!(told.contains("sandbox copy has ended"), "{told}");
    assert!(server.refused(&["exec", &copy[..8], "true"]).contains("has ended"));
    server.ok(&["snapshot", "rm", &snapshot[..8]]);

    server.ok(&["rm", "web"]);
    server.ok(&["rm", server.ok(&["create", "-t", "base", "--name", "web"]).trim()]);
    let token = server.ok(&["token", "create", "least"]);
    let mut asked = server.command(&["create"]);
    let refused = asked.env("SANDLING_API", server.address()).env("SANDLING_TOKEN", token.trim()).output().unwrap();
    assert!(text(&refused.stderr).contains("scope"), "a new token may only look: {}", text(&refused.stderr));
    server.ok(&["workspace", "create", "team"]);
    assert!(server.ok(&["workspace", "ls"]).contains("team"));
    server.ok(&["workspace", "rm", "team"]);
    let head = format!("{} completions bash | head -1", env!("CARGO_BIN_EXE_sandling"));
    let piped = std::process::Command::new("bash").args(["-c", &head]).output().unwrap();
    assert!(!text(&piped.stderr).contains("panicked"), "{}", text(&piped.stderr));
}

#[test]
fn the_default_template_has_pandas() {
    let server = Server::shared();
    assert_eq!(server.ok(&["run", "-c", "import pandas; print(pandas.Series([20, 22]).sum())"]), "42\n");
    let lacks = server.sandling(&["run", "-t", "base", "-c", "import pandas"]);
    let told = text(&lacks.stderr);
    assert!(told.contains("'pandas'\nsandling: hint: the template code-interpreter has pandas"), "{told}");
    let made = server.json(&["create", "--json", "--ttl", "10m"]);
    assert_eq!(made["template"], "code-interpreter");
    let inspected = server.json(&["template", "inspect", "code-interpreter"]);
    for package in ["npm:node", "pip:pandas", "python3"] {
        assert!(inspected["versions"][package].is_string(), "{package}: {inspected}");
    }
    let id = made["id"].as_str().unwrap();
    server.ok(&["exec", "-c", "python3 -c 'import pandas'", id]);
    server.ok(&["rm", id]);
}

#[test]
fn a_file_runs_as_if_it_ran_in_place() {
    let server = Server::shared();
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path().canonicalize().unwrap();
    let write = |name: &str, content: &str| {
        fs::create_dir_all(top.join(name).parent().unwrap()).unwrap();
        fs::write(top.join(name), content).unwrap();
    };
    write("src/helper.py", "def fail(): raise ValueError('deep')\n");
    write("src/data.txt", "from the file\n");
    write(".env", "SECRET=1");
    write("src/.env", "SECRET=1");
    let main = "import os, sys, helper\nprint(sys.argv, __file__, os.getcwd())\nprint(open('src/data.txt').read(), end='')\n\
                print(os.path.exists('src/.env'))\nopen('src/made.txt', 'w').write('made')\nhelper.fail()\n";
    write("src/main.py", main);
    let run = |arguments: &[&str]| {
        let mut command = server.command(arguments);
        command.current_dir(&top).output().unwrap()
    };
    let ran = run(&["run", "-t", "base", "--out", "out", "src/main.py", "--", "-x"]);
    let shown = top.display();
    let expected = format!("['src/main.py', '-x'] {shown}/src/main.py {shown}\nfrom the file\nFalse\n");
    assert_eq!((text(&ran.stdout), ran.status.code()), (expected, Some(1)), "{}", text(&ran.stderr));
    let told = text(&ran.stderr);
    assert!(told.contains(&format!("File \"{shown}/src/main.py\", line 6")), "{told}");
    assert!(
        told.contains("helper.py\", line 1") && told.contains("ValueError: deep") && !told.contains("<main>"),
        "{told}"
    );
    assert_eq!(fs::read_to_string(top.join("out/made.txt")).unwrap(), "made");
    assert!(!top.join("src/made.txt").exists() && !top.join("out/helper.py").exists());

    write("hello.sh", "echo \"$0 $1 $(pwd)\"");
    assert_eq!(text(&run(&["run", "-t", "base", "hello.sh", "--", "a"]).stdout), format!("hello.sh a {shown}\n"));
    write("tool", "#!/usr/bin/env python3\nimport sys; print('tool', sys.argv[1:])\n");
    assert_eq!(text(&run(&["run", "-t", "base", "tool", "--", "b"]).stdout), "tool ['b']\n");
    write(
        "a.ts",
        "enum Color { Red, Green }\nconst more: string[] = process.argv.slice(2);\nconsole.log(Color.Green, more[0]);\n",
    );
    let typed = run(&["run", "a.ts", "--", "c"]);
    assert_eq!(text(&typed.stdout), "1 c\n", "{}", text(&typed.stderr));
    write("data.csv", "a,b\n");
    let refused = run(&["run", "data.csv"]);
    assert!(text(&refused.stderr).contains("data.csv: the type .csv is not known"), "{}", text(&refused.stderr));
    assert_eq!(refused.status.code(), Some(2));
    let listed = run(&["run", "-t", "base", "--files", "src", "-c", "import os; print(sorted(os.listdir('.')))"]);
    assert_eq!(text(&listed.stdout), "['.env', 'data.txt', 'helper.py', 'main.py']\n", "{}", text(&listed.stderr));
}

#[test]
fn thousands_of_files_are_copied_in_one_stream() {
    let server = Server::shared();
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("many");
    for number in 0..3000 {
        let folder = source.join(format!("{}", number / 100));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), number.to_string()).unwrap();
    }
    fs::set_permissions(source.join("0/7"), fs::Permissions::from_mode(0o700)).unwrap();
    let place = format!("{}:/many", server.sandbox());
    let began = std::time::Instant::now();
    server.ok(&["cp", source.to_str().unwrap(), &place]);
    let there = began.elapsed();
    let back = directory.path().join("back");
    let began = std::time::Instant::now();
    server.ok(&["cp", &place, back.to_str().unwrap()]);
    println!("3000 files: {there:?} there, {:?} back", began.elapsed());
    let listed = server.ok(&[
        "exec",
        "-c",
        "find /many -type f | wc -l; cat /many/29/2999; stat -c %a /many/0/7",
        server.sandbox(),
    ]);
    assert_eq!(listed, "3000\n2999700\n");
    assert_eq!(fs::read_to_string(back.join("29/2999")).unwrap(), "2999");
    assert_eq!(walk(&back), 3000);
}

fn walk(directory: &std::path::Path) -> usize {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}
