//! What Dockerfiles become, and what is refused.

use std::collections::BTreeMap;

use super::super::steps::{Action, FileSource, MOST_STEPS, Plan, PlanError, RunMount};
use super::stages::MOST_BYTES;
use super::*;

const HASH: &str = "0123456789abcdef";

fn options() -> DockerfileOptions {
    DockerfileOptions { context: Some(HASH.to_owned()), ..DockerfileOptions::default() }
}

fn planned(text: &str, options: DockerfileOptions) -> Result<Planned, PlanError> {
    parse(text)?.select(options)?.plan(&BTreeMap::new())
}

fn plan(text: &str) -> Result<Plan, PlanError> {
    Ok(planned(text, options())?.stages.pop().flatten().unwrap_or_default())
}

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn scripts(plan: &Plan) -> Vec<String> {
    let runs = plan.actions.iter().filter_map(|action| match action {
        Action::Run { argv, .. } => argv.last().cloned(),
        _ => None,
    });
    runs.collect()
}

fn copies(plan: &Plan) -> Vec<&FileSource> {
    plan.actions.iter().filter(|action| matches!(action, Action::Place(_))).flat_map(|action| action.files()).collect()
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
EXPOSE 8000 53/udp
LABEL org="a b" version=1
STOPSIGNAL SIGINT
VOLUME /data
HEALTHCHECK --interval=30s --retries=3 CMD curl -f localhost
ENTRYPOINT ["python3"]
CMD ["-m", "http.server"]
"#;
    let selection = parse(text).unwrap().select(options()).unwrap();
    let bases: Vec<_> = selection.bases().collect();
    assert_eq!(bases, [(0, &StageBaseName::Named("python:3.11-slim".to_owned()))]);
    let plan = plan(text).unwrap();
    let outcome = plan.outcome(Default::default());
    assert_eq!((outcome.user.as_deref(), outcome.workdir.as_deref()), (Some("user:user"), Some("/srv/app")));
    assert!(outcome.env["PATH"].starts_with("/opt/bin:/usr/local/sbin:"), "{}", outcome.env["PATH"]);
    assert_eq!(outcome.env["MODE"], "fast");
    assert!(!outcome.env.contains_key("EXTRA"));
    assert_eq!(plan.start, Some(words("python3 -m http.server")));
    let runs = scripts(&plan);
    assert!(runs[0].starts_with("apt-get update &&") && runs[0].ends_with("install -y jq"), "{runs:?}");
    assert_eq!(runs[1], "-V");
    assert_eq!(copies(&plan).len(), 2);
    let config = plan.config.unwrap();
    assert_eq!(config.exposed_ports.unwrap().into_keys().collect::<Vec<_>>(), ["53/udp", "8000/tcp"]);
    assert_eq!(config.labels.unwrap()["org"], "a b");
    assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
    assert!(config.volumes.unwrap().contains_key("/data"));
    let health = config.healthcheck.unwrap();
    assert_eq!((health.test, health.retries), (vec!["CMD-SHELL".to_owned(), "curl -f localhost".to_owned()], Some(3)));
}

#[test]
fn only_the_stages_that_the_target_needs_are_planned() {
    let text =
        "FROM a AS one\nRUN one\nFROM b AS two\nRUN two\nFROM one\nCOPY --from=two /x /x\nFROM c AS other\nRUN other";
    let needed = |target: Option<&str>| {
        let options = DockerfileOptions { target: target.map(str::to_owned), ..options() };
        let planned = planned(text, options)?;
        Ok::<_, PlanError>(planned.stages.iter().map(Option::is_some).collect::<Vec<_>>())
    };
    assert_eq!(needed(None).unwrap(), [false, false, false, true]);
    assert_eq!(needed(Some("2")).unwrap(), [true, true, true, false]);
    assert_eq!(needed(Some("TWO")).unwrap(), [false, true, false, false]);
    assert!(needed(Some("none")).unwrap_err().to_string().contains("no stage none"));
}

#[test]
fn files_come_from_stages_images_texts_and_addresses() {
    let sum = "0".repeat(64);
    let text = format!(
        "FROM a AS build\nENV X=1\nFROM b\nARG TAG=3\nCOPY --from=build /a /b\nCOPY --from=0 /a /b\nCOPY --from=busybox:$TAG /bin/busybox /bin/\n\
         COPY <<EOF <<'RAW' /etc/\nvalue $TAG\nEOF\nvalue $TAG\nRAW\nADD --checksum=sha256:{sum} https://example.com/f.tgz /opt/\n\
         ADD app.tar.gz /opt/\nRUN --mount=type=bind,from=build,source=/src,target=/src --mount=type=cache,target=/root/.cache \
         --mount=type=secret,id=key,env=KEY --mount=type=tmpfs,target=/tmp/x,size=64m --network=none make"
    );
    let planned = planned(&text, options()).unwrap();
    assert_eq!(planned.images, ["busybox:3"]);
    let plan = planned.stages[1].as_ref().unwrap();
    let copies = copies(plan);
    let stage = |source: &FileSource| match source {
        FileSource::Stage { stage, .. } => Some(*stage),
        _ => None,
    };
    assert_eq!(copies.iter().take(3).map(|from| stage(from)).collect::<Vec<_>>(), [Some(0), Some(0), Some(2)]);
    let texts = [("EOF", "value 3\n"), ("RAW", "value $TAG\n")].map(|(name, text)| (name.to_owned(), text.to_owned()));
    assert_eq!(copies[3], &FileSource::Text(texts.to_vec()));
    assert!(matches!(copies[4], FileSource::Url { name, sha256: Some(_), .. } if name == "f.tgz"));
    assert!(matches!(plan.actions[plan.actions.len() - 2], Action::Place(ref place) if place.unpack));
    let linked = self::plan("FROM a\nCOPY --link --exclude=*.md --exclude=docs src /srv/").unwrap();
    let sources = self::copies(&linked);
    assert!(matches!(sources[0], FileSource::Context { excludes, .. } if *excludes == ["*.md", "docs"]), "{sources:?}");
    let Some(Action::Run { mounts, network, .. }) = plan.actions.last() else { panic!("{:?}", plan.actions) };
    assert!(!network && mounts.len() == 4);
    assert!(matches!(&mounts[2], RunMount::Secret { variable: Some(name), target: None, .. } if name == "KEY"));
    assert!(matches!(mounts[3], RunMount::Tmpfs { size_bytes: Some(67_108_864), .. }));
}

#[test]
fn arguments_come_from_the_client_the_stage_or_the_beginning() {
    let text = "ARG A=global\nARG B=b\nFROM x:$A\nARG A\nARG B=stage\nARG C=c\nARG TARGETARCH\nRUN $A\nENV V=$A-$B-$C-$TARGETARCH";
    let value = |build_args: &[(&str, &str)]| {
        let build_args = build_args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let options = DockerfileOptions { build_args, ..options() };
        let mut planned = planned(text, options).unwrap();
        let plan = planned.stages.remove(0).unwrap();
        let noted = plan.actions.iter().any(|action| matches!(action, Action::Note(_)));
        (plan.outcome(Default::default()).env["V"].clone(), noted)
    };
    assert_eq!(value(&[]), ("global-stage-c-amd64".to_owned(), false));
    assert_eq!(value(&[("A", "1"), ("B", "2"), ("C", "3")]), ("1-2-3-amd64".to_owned(), false));
    assert_eq!(value(&[("UNKNOWN", "1")]), ("global-stage-c-amd64".to_owned(), true));
    assert_eq!(value(&[("HTTP_PROXY", "1")]), ("global-stage-c-amd64".to_owned(), false));
}

#[test]
fn run_takes_here_documents() {
    let text = "FROM base\nRUN <<EOF\necho one\necho two\nEOF\nRUN cat >/x <<'END'\ntext\nEND\nRUN <<-A cat - <<B\n\tone\n\tA\ntwo\nB\nRUN echo $((1<<2))\nRUN a\\\n\n# comment\nb";
    let scripts = scripts(&plan(text).unwrap());
    let expected = [
        "echo one\necho two\n",
        "cat >/x <<'END'\ntext\nEND\n",
        "<<-A cat - <<B\none\nA\ntwo\nB\n",
        "echo $((1<<2))",
        "ab",
    ];
    assert_eq!(scripts, expected);
}

#[test]
fn the_triggers_of_a_base_run_in_the_stage_on_top_of_it() {
    let text = "FROM a AS base\nONBUILD ENV A=1\nONBUILD RUN make\nFROM base\nRUN after";
    let plan = plan(text).unwrap();
    assert_eq!(scripts(&plan), ["make", "after"]);
    assert_eq!(plan.outcome(Default::default()).env["A"], "1");
    assert_eq!(plan.config.unwrap().on_build, None);
}

#[test]
fn a_stage_on_top_of_another_inherits_what_that_one_set() {
    let text =
        "FROM a AS one\nENV A=1\nSHELL [\"/bin/bash\", \"-c\"]\nCMD [\"serve\"]\nFROM one\nRUN echo $A\nENV B=$A";
    let plan = plan(text).unwrap();
    assert_eq!(plan.outcome(Default::default()).env["B"], "1");
    assert_eq!(plan.start, Some(words("serve")));
    assert!(matches!(&plan.actions[0], Action::Run { argv, .. } if argv[0] == "/bin/bash"));
}

#[test]
fn the_escape_directive_is_followed() {
    let text = "# escape=`\nFROM base\nRUN a `\n  b\nENV P=C:\\x";
    let plan = plan(text).unwrap();
    assert_eq!(scripts(&plan), ["a   b"]);
    assert_eq!(plan.outcome(Default::default()).env["P"], "C:\\x");
}

#[test]
fn a_small_dockerfile_cannot_expand_to_a_large_plan() {
    let long = format!("ARG A={}\n", "x".repeat(30 * 1024));
    let tenfold = "ARG A=$A$A$A$A$A$A$A$A$A$A\n".repeat(12);
    for text in [
        format!("ARG A=0123456789\n{tenfold}FROM base"),
        format!("FROM base\nARG A=0123456789\n{tenfold}"),
        format!("FROM base\n{}", "RUN true\n".repeat(MOST_STEPS + 1)),
        format!("FROM base\nCOPY {} /x", "a ".repeat(MOST_STEPS + 1)),
        format!("FROM base\n# {}", "x".repeat(MOST_BYTES)),
        format!("{long}FROM base\nARG A\nCOPY {} /x", "$A ".repeat(9)),
        format!("{long}FROM base\nARG A\nENV {}", "B=$A ".repeat(9)),
        format!("{long}FROM base\nARG A\nCOPY {} a /x", "--chown=$A ".repeat(17)),
        format!("{long}FROM {}", "$A ".repeat(9)),
    ] {
        let error = plan(&text).unwrap_err().to_string();
        assert!(["too", "most", "many", "may have"].iter().any(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn entrypoint_and_cmd_are_combined_as_docker_does() {
    let start = |text: &str| plan(&format!("FROM base\n{text}")).unwrap().start;
    let shell = |line: &str| ["/bin/sh", "-c", line].map(str::to_owned).to_vec();
    assert_eq!(start("RUN true"), None);
    assert_eq!(start("CMD server --port 1"), Some(shell("server --port 1")));
    assert_eq!(start("ENTRYPOINT run it\nCMD [\"x\"]"), Some([shell("run it"), words("x")].concat()));
    assert_eq!(start("CMD [\"x\"]\nENTRYPOINT [\"y\"]"), Some(words("y")));
    assert_eq!(start("CMD [\"x\"]\nCMD []"), None);
}

#[test]
fn an_impossible_instruction_is_refused_with_its_line() {
    for (text, said) in [
        ("RUN true", "before FROM"),
        ("", "no FROM"),
        ("FROM base\nADD git@example.com:x /x", "takes no repository"),
        ("FROM base\nADD https://example.com/x.git /x", "takes no repository"),
        ("FROM base\nCOPY https://example.com/x /x", "use ADD"),
        ("FROM base\nADD --checksum=md5:0 https://example.com/x /x", "sha256:HEX"),
        ("FROM base\nCOPY ../secret /x", "cannot leave"),
        ("FROM base\nCOPY --from=x ../secret /x", "cannot leave"),
        ("FROM base\nCOPY --parents a /x", "cannot have --parents"),
        ("FROM base\nCOPY --chmod=u+x a /x", "octal"),
        ("FROM base\nCOPY a", "source and a target"),
        ("FROM base\nONBUILD FROM x", "cannot be followed by FROM"),
        ("FROM base\nENV A=${B", "without an end"),
        ("FROM base\nENV A=\"${B:?is missing}\"", "is missing"),
        ("FROM base\nRUN <<EOF\nmake", "without an end"),
        ("FROM base\nRUN --mount=type=ssh true", "--mount=type=ssh"),
        ("FROM base\nRUN --mount=type=secret true", "needs an id"),
        ("FROM base\nRUN --mount=type=cache,target=/x,nonsense=1 true", "cannot have nonsense"),
        ("FROM base\nRUN --network=host true", "cannot have --network=host"),
        ("FROM base\nRUN --security=insecure true", "cannot have --security=insecure"),
        ("FROM base\nEXPOSE http", "needs a port"),
        ("FROM base\nHEALTHCHECK curl", "needs CMD"),
        ("FROM base\nINCLUDE x", "not understood"),
        ("FROM --platform=linux/arm64 base", "the platform linux/arm64"),
    ] {
        let error = plan(text).unwrap_err();
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    let without_files = planned("FROM base\n\nCOPY a b", DockerfileOptions::default()).unwrap_err();
    assert!(without_files.to_string().starts_with("line 3 "), "{without_files}");
}

proptest::proptest! {
    #[test]
    fn no_text_causes_a_panic(text in "(FROM base\n)?([A-Za-z]{1,9} )?(--[a-z]{1,7}=)?[ -~\n\\\\\"'$<{]{0,120}") {
        let _ = plan(&text);
    }
}
