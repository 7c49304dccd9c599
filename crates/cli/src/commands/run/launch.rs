//! How a file is run: by its extension, its `#!` line or `--language`.

use std::path::Path;

use anyhow::bail;
use sandling_protocol::Language;

/// Runs a script in a pre-warmed Python as if Python had been started with its path.
const PYTHON_LAUNCHER: &str = include_str!("launcher.py");
/// Runs TypeScript with what the sandbox has: tsx, or a Node that translates it itself. Some versions of Node translate all
/// of it with one option, and only remove types with the other; the newest ones need none.
const TYPESCRIPT: &str = r#"
command -v tsx >/dev/null && exec tsx "$@"
option='const known = process.allowedNodeEnvironmentFlags
    const option = ["--experimental-transform-types", "--experimental-strip-types"].find((name) => known.has(name))
    if (!option && !process.features.typescript) process.exit(1)
    console.log(option ?? "--no-warnings")'
option=$(node -e "$option" 2>/dev/null) && exec node "$option" --no-warnings "$@"
echo "sandling: $1 is TypeScript, which needs tsx or Node 22.6 or newer in the sandbox;" \
    "'sandling template build ts --from code-interpreter --npm tsx' builds a template with tsx" >&2
exit 127
"#;

/// What a file contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    Script(Language),
    TypeScript,
    /// Its `#!` line names its interpreter.
    Executable,
}

/// What to start in the sandbox.
#[derive(Debug, PartialEq, Eq)]
pub enum Launch {
    /// Code for an interpreter.
    Code {
        language: Language,
        text: String,
    },
    Program(Vec<String>),
}

impl FileKind {
    pub fn of(file: &Path, text: &str, language: Option<Language>) -> anyhow::Result<Self> {
        if let Some(language) = language {
            return Ok(Self::Script(language));
        }
        let extension = file.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        Ok(match extension.to_ascii_lowercase().as_str() {
            "py" | "pyw" => Self::Script(Language::Python),
            "js" | "mjs" | "cjs" => Self::Script(Language::Node),
            "ts" | "mts" | "cts" => Self::TypeScript,
            "sh" | "bash" => Self::Script(Language::Bash),
            _ if text.starts_with("#!") => Self::Executable,
            _ => bail!(
                "cannot run {}: {}; Sandling runs .py, .js, .mjs, .cjs, .ts and .sh files, and files that start with #!; \
                 --language runs it as python, node or bash",
                file.display(),
                match extension {
                    "" => "it has no extension and no #! line".to_owned(),
                    extension => format!("the type .{extension} is not known"),
                }
            ),
        })
    }

    /// The language whose template the file needs.
    pub fn language(self) -> Language {
        match self {
            Self::Script(language) => language,
            Self::TypeScript => Language::Node,
            Self::Executable => Language::Bash,
        }
    }

    /// Starts the file at `path` in the sandbox. `shown` is how the user wrote the path.
    pub fn launch(self, path: &str, shown: &str, args: &[String]) -> Launch {
        let program = |words: &[&str]| {
            Launch::Program(words.iter().map(|word| (*word).to_owned()).chain(args.iter().cloned()).collect())
        };
        match self {
            Self::Script(Language::Python) => {
                let paths = format!("({}, {})", python_text(path), python_text(shown));
                Launch::Code { language: Language::Python, text: PYTHON_LAUNCHER.replacen("PATHS", &paths, 1) }
            }
            Self::Script(Language::Node) => program(&["node", shown]),
            Self::Script(Language::Bash) => program(&["bash", shown]),
            Self::TypeScript => program(&["sh", "-c", TYPESCRIPT, "sandling", shown]),
            Self::Executable => program(&[path]),
        }
    }
}

/// A text as Python writes it. A JSON string is the same, except that Python has no surrogate pairs, which JSON needs only
/// if it is escaped to ASCII.
fn python_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_of_a_file_is_known_or_refused_by_name() {
        let kind = |name: &str, text: &str| FileKind::of(Path::new(name), text, None);
        assert_eq!(kind("a.py", "").unwrap(), FileKind::Script(Language::Python));
        assert_eq!(kind("a.MJS", "").unwrap(), FileKind::Script(Language::Node));
        assert_eq!(kind("a.ts", "").unwrap(), FileKind::TypeScript);
        assert_eq!(kind("a.sh", "#!/bin/zsh").unwrap(), FileKind::Script(Language::Bash));
        assert_eq!(kind("a.pl", "#!/usr/bin/perl").unwrap(), FileKind::Executable);
        assert_eq!(kind("tool", "#!/usr/bin/env python3").unwrap(), FileKind::Executable);
        let told = kind("data.csv", "a,b").unwrap_err().to_string();
        assert!(told.contains("data.csv") && told.contains(".csv is not known"), "{told}");
        assert!(kind("Makefile", "all:").unwrap_err().to_string().contains("no #! line"));
        let forced = FileKind::of(Path::new("data.csv"), "", Some(Language::Python)).unwrap();
        assert_eq!(forced, FileKind::Script(Language::Python));
    }

    #[test]
    fn python_runs_the_file_as_if_it_were_started_with_it() {
        let directory = tempfile::tempdir().unwrap();
        let script = directory.path().join("it's \"ü\".py");
        let helper = directory.path().join("helper.py");
        std::fs::write(&helper, "def fail():\n    raise ValueError('deep')\n").unwrap();
        let body = "import sys, helper\nprint(__name__, __file__, sys.argv)\nprint(sorted(n for n in globals() if n[0] != '_'))\nhelper.fail()\n";
        std::fs::write(&script, body).unwrap();
        let kind = FileKind::Script(Language::Python);
        let Launch::Code { text, .. } = kind.launch(script.to_str().unwrap(), "./x.py", &[]) else { panic!() };
        let run = |text: &str| {
            std::process::Command::new("python3").args(["-c", text, "one"]).output().expect("python3 is installed")
        };
        let ran = run(&text);
        let (stdout, stderr) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let expected = format!("__main__ {} ['./x.py', 'one']\n['helper', 'sys']\n", script.display());
        assert_eq!(stdout, expected, "{stderr}");
        assert_eq!(ran.status.code(), Some(1));
        let frames: Vec<&str> = stderr.lines().filter(|line| line.trim_start().starts_with("File ")).collect();
        assert_eq!(frames.len(), 2, "{stderr}");
        assert!(frames[0].contains(&format!("\"{}\", line 4", script.display())), "{stderr}");
        assert!(frames[1].contains("helper.py") && stderr.contains("ValueError: deep"), "{stderr}");
        std::fs::write(&script, "import sys\nsys.exit(7)\n").unwrap();
        assert_eq!(run(&text).status.code(), Some(7));
        std::fs::write(&script, "x = = 1\n").unwrap();
        let broken = run(&text);
        let told = String::from_utf8_lossy(&broken.stderr);
        assert!(told.starts_with("  File ") && told.contains("SyntaxError"), "{told}");
    }
}
