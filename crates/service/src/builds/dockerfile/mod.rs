//! Reads a Dockerfile with one stage as the steps of a build.
//!
//! An instruction that cannot be carried out is refused, and the error names its line. Only instructions that have no
//! meaning for a machine, such as `EXPOSE` and `LABEL`, are skipped, with a remark in the log.

mod instruction;
mod reader;
mod words;

use instruction::{Instruction, instructions};
use reader::Reader;
use words::{Scope, Variables, arguments, expand_all};

use super::steps::{MOST_STEPS, Plan, PlanError};

/// The `PATH` of an image that sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MOST_BYTES: usize = 256 * 1024;

/// A Dockerfile whose base is known, and whose steps are not read yet.
#[derive(Debug)]
pub struct Dockerfile {
    pub from: String,
    /// The `ARG`s before `FROM`.
    global: Variables,
    instructions: Vec<Instruction>,
}

/// Reads a Dockerfile up to its base.
pub fn parse(text: &str) -> Result<Dockerfile, PlanError> {
    if text.len() > MOST_BYTES {
        return Err(PlanError::DockerfileTooLarge { most_kib: MOST_BYTES >> 10 });
    }
    let mut instructions = instructions(text)?.into_iter();
    let mut global = Variables::new();
    for instruction in instructions.by_ref() {
        match instruction.keyword.as_str() {
            "ARG" => {
                let said = arguments(&instruction, Scope::of(&global))?;
                global.extend(said.into_iter().filter_map(|(name, value)| Some((name, value?))));
            }
            "FROM" => {
                let from = base(&instruction, Scope::of(&global))?;
                return Ok(Dockerfile { from, global, instructions: instructions.collect() });
            }
            _ => return Err(instruction.wrong("comes before FROM")),
        }
    }
    Err(PlanError::NoBase)
}

fn base(instruction: &Instruction, global: Scope<'_>) -> Result<String, PlanError> {
    let words = expand_all(instruction, global)?;
    let (flags, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.starts_with("--"));
    if let Some(other) = flags.iter().find(|flag| *flag != "--platform=linux/amd64") {
        return Err(instruction.wrong(format_args!("cannot have {other} here")));
    }
    match words.as_slice() {
        [image] => Ok(image.clone()),
        [image, word, _] if word.eq_ignore_ascii_case("as") => Ok(image.clone()),
        _ => Err(instruction.wrong("needs the name of an image")),
    }
}

impl Dockerfile {
    /// The steps on top of a base with these variables. `context` is the hash of the files that were sent with it.
    pub fn plan(&self, base: &Variables, context: Option<&str>) -> Result<Plan, PlanError> {
        let mut reader = Reader {
            global: &self.global,
            context,
            env: base.clone(),
            arguments: Variables::new(),
            shell: vec!["/bin/sh".to_owned(), "-c".to_owned()],
            entrypoint: None,
            command: None,
            actions: Vec::new(),
        };
        reader.env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
        for instruction in &self.instructions {
            reader.take(instruction)?;
            if reader.actions.len() > MOST_STEPS {
                return Err(PlanError::TooManySteps);
            }
        }
        Ok(reader.plan())
    }
}

#[cfg(test)]
mod tests {
    use super::super::steps::Action;
    use super::*;

    fn plan(text: &str) -> Result<Plan, PlanError> {
        parse(text)?.plan(&Variables::new(), Some("0123456789abcdef"))
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_common_dockerfile_is_understood() {
        let text = r#"# syntax=docker/dockerfile:1
ARG VERSION=3.11
FROM python:${VERSION}-slim AS app
ARG EXTRA="a b"
ENV APP=/srv/app PATH="/opt/bin:$PATH" \
    # in between
    MODE=${MODE:-fast}
WORKDIR $APP
COPY --chown=user:user requirements.txt ./
COPY ["src", "more files", "/srv/"]
RUN apt-get update && \
    apt-get install -y jq
RUN ["python3", "-V"]
USER user:user
EXPOSE 8000
ENTRYPOINT ["python3"]
CMD ["-m", "http.server"]
"#;
        let file = parse(text).unwrap();
        assert_eq!(file.from, "python:3.11-slim");
        let plan = file.plan(&Variables::new(), Some("0123456789abcdef")).unwrap();
        let outcome = plan.outcome(Default::default());
        assert_eq!((outcome.user.as_deref(), outcome.workdir.as_deref()), (Some("user"), Some("/srv/app")));
        assert_eq!(outcome.env["PATH"], format!("/opt/bin:{PATH}"));
        assert_eq!(outcome.env["MODE"], "fast");
        assert!(!outcome.env.contains_key("EXTRA"));
        assert_eq!(plan.start, Some(words("python3 -m http.server")));
        let runs = plan.actions.iter().filter_map(|action| match action {
            Action::Run { argv, .. } => Some(argv.clone()),
            _ => None,
        });
        let runs: Vec<_> = runs.collect();
        assert_eq!(runs[0][..2], words("/bin/sh -c"));
        assert!(runs[0][2].starts_with("apt-get update &&") && runs[0][2].ends_with("install -y jq"), "{runs:?}");
        assert_eq!(runs[1], words("python3 -V"));
        let copies = plan.actions.iter().filter(|action| matches!(action, Action::Copy { .. })).count();
        assert_eq!(copies, 3);
    }

    #[test]
    fn run_takes_a_here_document() {
        let plan =
            plan("FROM base\nRUN <<EOF\necho one\necho two\nEOF\nRUN cat >/x <<'END'\ntext\nEND\nRUN true").unwrap();
        let scripts = plan.actions.iter().map(|action| match action {
            Action::Run { argv, .. } => argv[2].as_str(),
            other => panic!("{other:?}"),
        });
        let scripts: Vec<_> = scripts.collect();
        assert_eq!(scripts, ["echo one\necho two\n", "cat >/x <<'END'\ntext\nEND\n", "true"]);
    }

    #[test]
    fn a_small_dockerfile_cannot_expand_to_a_large_plan() {
        let tenfold = "ARG A=$A$A$A$A$A$A$A$A$A$A\n".repeat(12);
        for text in [
            format!("ARG A=0123456789\n{tenfold}FROM base"),
            format!("FROM base\nARG A=0123456789\n{tenfold}"),
            format!("FROM base\n{}", "RUN true\n".repeat(MOST_STEPS + 1)),
            format!("FROM base\nCOPY {} /x", "a ".repeat(MOST_STEPS + 1)),
            format!("FROM base\n# {}", "x".repeat(MOST_BYTES)),
        ] {
            assert!(plan(&text).is_err(), "{}", &text[..60]);
        }
    }

    #[test]
    fn entrypoint_and_cmd_are_combined_as_docker_does() {
        let start = |text: &str| plan(&format!("FROM base\n{text}")).unwrap().start;
        assert_eq!(start("RUN true"), None);
        assert_eq!(start("CMD server --port 1"), Some(vec!["/bin/sh".into(), "-c".into(), "server --port 1".into()]));
        assert_eq!(start("ENTRYPOINT run it\nCMD [\"x\"]"), Some(vec!["/bin/sh".into(), "-c".into(), "run it".into()]));
        assert_eq!(start("CMD [\"x\"]\nENTRYPOINT [\"y\"]"), Some(words("y")));
    }

    #[test]
    fn an_impossible_instruction_is_refused_with_its_line() {
        for (text, said) in [
            ("RUN true", "before FROM"),
            ("", "no FROM"),
            ("FROM base\nFROM base", "one stage"),
            ("FROM base\nCOPY --from=other a b", "another image"),
            ("FROM base\nADD https://example.com/x /x", "no address"),
            ("FROM base\nADD x.tar.gz /x", "unpacks nothing"),
            ("FROM base\nCOPY ../secret /x", "cannot leave"),
            ("FROM base\nCOPY a", "source and a target"),
            ("FROM base\nONBUILD RUN x", "not understood"),
            ("FROM base\nENV A=${B", "without an end"),
            ("FROM base\nRUN <<EOF\nmake", "without an end"),
            ("FROM base\nRUN --mount=type=secret,id=x true", "cannot have"),
            ("FROM --platform=linux/arm64 base", "cannot have"),
        ] {
            let error = plan(text).unwrap_err();
            assert!(error.to_string().contains(said), "{text}: {error}");
        }
        let without_files = parse("FROM base\n\nCOPY a b").unwrap().plan(&Variables::new(), None).unwrap_err();
        assert!(without_files.to_string().starts_with("line 3 "), "{without_files}");
    }

    proptest::proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(FROM base\n)?([A-Za-z]{1,9} )?[ -~\n\\\\\"'$<{]{0,120}") {
            let _ = plan(&text);
        }
    }
}
