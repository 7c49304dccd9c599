//! A Dockerfile of one stage, read as a build's steps.
//!
//! What it says is what is done: what cannot be done is refused with its line, and only what has no meaning for a
//! machine (`EXPOSE`, `LABEL` and the like) is passed over with a word in the log.

use std::collections::BTreeMap;

use super::steps::{Action, MOST_STEPS, Plan, Usual, too_many_steps};
use crate::error::ApiError;
use crate::wire::files::permissions;
use crate::wire::sandbox::check_env;

/// What an image without a word about it has.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const USUAL: Usual = Usual { user: "root", workdir: Some("/") };
const WITHOUT_MEANING: [&str; 6] = ["EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"];
/// What a Dockerfile, and a word of it with its variables in their places, may have.
const MOST_BYTES: usize = 256 * 1024;
const LONGEST_WORD: usize = 32 * 1024;
const ARCHIVES: [&str; 6] = [".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst"];

type Variables = BTreeMap<String, String>;

/// A Dockerfile whose base is known and whose steps are yet to be understood.
#[derive(Debug)]
pub(crate) struct Dockerfile {
    pub(crate) from: String,
    /// What `ARG` said before `FROM`.
    global: Variables,
    instructions: Vec<Instruction>,
}

#[derive(Debug)]
struct Instruction {
    line: usize,
    keyword: String,
    rest: String,
    /// Texts that were put behind it (`<<EOF`), with their end marks.
    here: Option<String>,
}

impl Instruction {
    fn wrong(&self, what: impl std::fmt::Display) -> ApiError {
        ApiError::bad_request(format!("line {} of the Dockerfile: {} {what}", self.line, self.keyword))
    }

    /// The form that is a JSON array, if it is one.
    fn array(&self) -> Option<Vec<String>> {
        array(&self.rest)
    }
}

fn array(text: &str) -> Option<Vec<String>> {
    if text.starts_with('[') { serde_json::from_str(text).ok() } else { None }
}

/// Reads a Dockerfile up to its base.
pub(crate) fn parse(text: &str) -> Result<Dockerfile, ApiError> {
    if text.len() > MOST_BYTES {
        return Err(ApiError::bad_request(format!("a Dockerfile may have {} KiB", MOST_BYTES >> 10)));
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
    Err(ApiError::bad_request("the Dockerfile has no FROM"))
}

/// What `$NAME` may stand for: the first of these that has it.
#[derive(Clone, Copy)]
struct Scope<'a>([Option<&'a Variables>; 2]);

impl<'a> Scope<'a> {
    fn of(variables: &'a Variables) -> Self {
        Self([Some(variables), None])
    }

    fn get(self, name: &str) -> Option<&'a String> {
        self.0.into_iter().flatten().find_map(|variables| variables.get(name))
    }
}

fn base(instruction: &Instruction, global: Scope<'_>) -> Result<String, ApiError> {
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

/// Lines put together, without comments.
fn instructions(text: &str) -> Result<Vec<Instruction>, ApiError> {
    let mut found = Vec::new();
    let mut lines = (1..).zip(text.lines()).peekable();
    while let Some((line, first)) = lines.next() {
        let mut whole = String::new();
        let mut next = Some(first);
        while let Some(text) = next {
            let trimmed = text.trim();
            let continues = trimmed.ends_with('\\');
            if !trimmed.starts_with('#') {
                whole += trimmed.strip_suffix('\\').unwrap_or(trimmed);
            }
            let more = (continues || trimmed.starts_with('#') || trimmed.is_empty()) && !whole.is_empty();
            next = if more { lines.next().map(|(_, text)| text) } else { None };
            if more && !trimmed.is_empty() {
                whole.push(' ');
            }
        }
        let (keyword, rest) = whole.trim().split_once(char::is_whitespace).unwrap_or((whole.trim(), ""));
        if keyword.is_empty() {
            continue;
        }
        let (keyword, rest) = (keyword.to_ascii_uppercase(), rest.trim().to_owned());
        let mark = if keyword == "RUN" || keyword == "COPY" { here_mark(&rest) } else { None };
        let mut instruction = Instruction { line, keyword, rest, here: None };
        if let Some(mark) = mark {
            let mut body = String::new();
            loop {
                let (_, text) = lines.next().ok_or_else(|| instruction.wrong("has a text without an end"))?;
                body += text;
                body.push('\n');
                if text.trim_start_matches('\t') == mark {
                    break;
                }
            }
            instruction.here = Some(body);
        }
        found.push(instruction);
        if found.len() > MOST_STEPS {
            return Err(too_many_steps());
        }
    }
    Ok(found)
}

/// The mark that ends a text behind an instruction: the word after `<<`.
fn here_mark(rest: &str) -> Option<String> {
    let (_, after) = rest.split_once("<<")?;
    let word = after.strip_prefix('-').unwrap_or(after).split(char::is_whitespace).next()?.trim_matches(['"', '\'']);
    let fits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    fits.then(|| word.to_owned())
}

impl Dockerfile {
    /// Its steps on top of a base with these variables. `context` is the hash of the files that came with it.
    pub(crate) fn plan(&self, base: &Variables, context: Option<&str>) -> Result<Plan, ApiError> {
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
                return Err(too_many_steps());
            }
        }
        Ok(reader.plan())
    }
}

/// A command in one of its two forms.
enum Form {
    Line(String),
    Words(Vec<String>),
}

struct Reader<'a> {
    global: &'a Variables,
    context: Option<&'a str>,
    env: Variables,
    arguments: Variables,
    shell: Vec<String>,
    entrypoint: Option<Form>,
    command: Option<Form>,
    actions: Vec<Action>,
}

impl Reader<'_> {
    fn take(&mut self, it: &Instruction) -> Result<(), ApiError> {
        match it.keyword.as_str() {
            "RUN" => self.run(it)?,
            "COPY" | "ADD" => self.copy(it)?,
            "ENV" => self.variables(it)?,
            "ARG" => {
                let mut said = Variables::new();
                for (name, value) in arguments(it, self.known())? {
                    said.extend(value.or_else(|| self.global.get(&name).cloned()).map(|value| (name, value)));
                }
                check_env(&said)?;
                self.arguments.extend(said.clone());
                self.actions.push(Action::Arg(said));
            }
            "WORKDIR" => self.actions.push(Action::Workdir(self.one(it)?)),
            "USER" => {
                let user = self.one(it)?;
                // A group beside it changes nothing: users here have one of their own.
                self.actions.push(Action::User(user.split(':').next().unwrap_or_default().to_owned()));
            }
            "SHELL" => {
                let shell = it.array().filter(|shell| !shell.is_empty());
                self.shell = shell.ok_or_else(|| it.wrong("needs a JSON array"))?;
            }
            "ENTRYPOINT" => {
                self.entrypoint = form(it);
                // As Docker has it: a new one forgets the arguments of the one before.
                self.command = None;
            }
            "CMD" => self.command = form(it),
            "FROM" => return Err(it.wrong("may be there once: a build has one stage here")),
            name if WITHOUT_MEANING.contains(&name) => {
                self.actions.push(Action::Note(format!("{name} has no meaning here and is passed over")));
            }
            _ => return Err(it.wrong("is not understood here")),
        }
        Ok(())
    }

    fn plan(self) -> Plan {
        let start = match (&self.entrypoint, &self.command) {
            (Some(Form::Words(words)), Some(Form::Words(more))) => [words.clone(), more.clone()].concat(),
            (Some(Form::Words(words)), Some(Form::Line(line))) => [words.clone(), self.in_shell(line)].concat(),
            (Some(form), _) | (None, Some(form)) => match form {
                Form::Line(line) => self.in_shell(line),
                Form::Words(words) => words.clone(),
            },
            (None, None) => Vec::new(),
        };
        let start = (!start.is_empty()).then_some(start);
        Plan { actions: self.actions, start, ready: None, usual: USUAL }
    }

    fn in_shell(&self, line: &str) -> Vec<String> {
        self.shell.iter().cloned().chain([line.to_owned()]).collect()
    }

    /// What `$NAME` may stand for.
    fn known(&self) -> Scope<'_> {
        Scope([Some(&self.env), Some(&self.arguments)])
    }

    fn one(&self, it: &Instruction) -> Result<String, ApiError> {
        match expand_all(it, self.known())?.as_slice() {
            [word] if !word.is_empty() => Ok(word.clone()),
            _ => Err(it.wrong("needs one argument")),
        }
    }

    fn run(&mut self, it: &Instruction) -> Result<(), ApiError> {
        let mut rest = it.rest.as_str();
        while rest.starts_with("--") {
            let (flag, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            // A cache makes a build faster and nothing else different.
            if !flag.starts_with("--mount=type=cache") && flag != "--network=default" {
                return Err(it.wrong(format_args!("cannot have {flag} here")));
            }
            rest = more.trim_start();
        }
        if rest.is_empty() {
            return Err(it.wrong("needs a command"));
        }
        let argv = match (&it.here, array(rest)) {
            (Some(body), _) if rest.starts_with("<<") => {
                let end = body.trim_end_matches('\n').rfind('\n').map_or(0, |at| at + 1);
                self.in_shell(&body[..end])
            }
            (Some(body), _) => self.in_shell(&format!("{rest}\n{body}")),
            (None, Some(words)) if !words.is_empty() => words,
            (None, _) => self.in_shell(rest),
        };
        self.actions.push(Action::Run { argv, user: None, text: rest.to_owned() });
        Ok(())
    }

    fn variables(&mut self, it: &Instruction) -> Result<(), ApiError> {
        let known = self.known();
        let words = split(&it.rest);
        let mut said = Variables::new();
        match words.as_slice() {
            [name, _, ..] if !name.contains('=') => {
                // The old form: a name, and all the rest is its value.
                let value = it.rest[name.len()..].trim_start();
                said.insert(name.clone(), expand(value, known).map_err(|what| it.wrong(what))?);
            }
            [] => return Err(it.wrong("needs a name and a value")),
            words => {
                for word in words {
                    let word = expand(word, known).map_err(|what| it.wrong(what))?;
                    let (name, value) = word.split_once('=').ok_or_else(|| it.wrong("needs a name and a value"))?;
                    said.insert(name.to_owned(), value.to_owned());
                }
            }
        }
        check_env(&said)?;
        self.env.extend(said.clone());
        self.actions.push(Action::Env(said));
        Ok(())
    }

    fn copy(&mut self, it: &Instruction) -> Result<(), ApiError> {
        if it.here.is_some() {
            return Err(it.wrong("of a text in the Dockerfile is not understood here"));
        }
        let (flags, mut words) = flags(it, self.known())?;
        let (mut owner, mut mode) = ("root".to_owned(), None);
        for flag in flags {
            match flag.split_once('=').unwrap_or((&flag, "")) {
                ("--chown", value) => owner = value.to_owned(),
                ("--chmod", value) => mode = Some(permissions(value)?),
                ("--link", _) => {}
                ("--from", _) => return Err(it.wrong("cannot take from another image or stage here")),
                (other, _) => return Err(it.wrong(format_args!("cannot have {other} here"))),
            }
        }
        let target =
            words.pop().filter(|_| !words.is_empty()).ok_or_else(|| it.wrong("needs a source and a target"))?;
        if words.len() > MOST_STEPS {
            return Err(too_many_steps());
        }
        let many = words.len() > 1;
        for source in words {
            let hash = self.context.ok_or_else(|| it.wrong("needs files, and none came with the Dockerfile"))?;
            let source = local(it, &source)?;
            let into = if many && !target.ends_with('/') { format!("{target}/") } else { target.clone() };
            let owner = Some(owner.clone());
            self.actions.push(Action::Copy { source, target: into, owner, mode, hash: hash.to_owned() });
        }
        Ok(())
    }
}

/// A source as a path among the files that came along.
fn local(it: &Instruction, source: &str) -> Result<String, ApiError> {
    if source.contains("://") || source.starts_with("git@") {
        return Err(it.wrong("takes no address here: RUN curl or git instead"));
    }
    if it.keyword == "ADD" && ARCHIVES.iter().any(|end| source.ends_with(end)) {
        return Err(it.wrong("unpacks nothing here: COPY the archive and RUN tar"));
    }
    let path = source.trim_start_matches('/');
    if path.split('/').any(|part| part == "..") {
        return Err(it.wrong("cannot leave the directory of the build"));
    }
    Ok(if path.is_empty() { ".".to_owned() } else { path.to_owned() })
}

fn form(it: &Instruction) -> Option<Form> {
    match it.array() {
        Some(words) if words.is_empty() => None,
        Some(words) => Some(Form::Words(words)),
        None if it.rest.is_empty() => None,
        None => Some(Form::Line(it.rest.clone())),
    }
}

/// `--flags`, and what comes after them, as words or as an array.
fn flags(it: &Instruction, known: Scope<'_>) -> Result<(Vec<String>, Vec<String>), ApiError> {
    let mut rest = it.rest.as_str();
    let mut flags = Vec::new();
    while rest.starts_with("--") {
        let (flag, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        flags.push(expand(flag, known).map_err(|what| it.wrong(what))?);
        rest = more.trim_start();
    }
    let words = array(rest).unwrap_or_else(|| split(rest));
    let words = words.iter().map(|word| expand(word, known)).collect::<Result<_, _>>();
    Ok((flags, words.map_err(|what| it.wrong(what))?))
}

/// Names of arguments, with their values where they have one.
fn arguments(it: &Instruction, known: Scope<'_>) -> Result<Vec<(String, Option<String>)>, ApiError> {
    let words = expand_all(it, known)?;
    if words.is_empty() {
        return Err(it.wrong("needs a name"));
    }
    let pair = |word: String| match word.split_once('=') {
        Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
        None => (word, None),
    };
    Ok(words.into_iter().map(pair).collect())
}

fn expand_all(it: &Instruction, known: Scope<'_>) -> Result<Vec<String>, ApiError> {
    let words = split(&it.rest).iter().map(|word| expand(word, known)).collect::<Result<_, _>>();
    words.map_err(|what| it.wrong(what))
}

/// Words between spaces; what is quoted stays together, with its quotes.
fn split(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            ('\\', None | Some('"')) => {
                word.push(letter);
                word.extend(letters.next());
                continue;
            }
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            _ => {}
        }
        if letter.is_whitespace() && quote.is_none() {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        } else {
            word.push(letter);
        }
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

/// A word without its quotes, with variables in their places.
fn expand(word: &str, known: Scope<'_>) -> Result<String, &'static str> {
    let (mut out, mut quote) = (String::new(), None);
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        if out.len() > LONGEST_WORD {
            return Err("is too long with its variables in their places");
        }
        match (letter, quote) {
            ('\'' | '"', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            ('\\', None | Some('"')) => out.extend(letters.next()),
            ('$', None | Some('"')) => match letters.peek() {
                Some('{') => {
                    letters.next();
                    let mut inside = String::new();
                    loop {
                        match letters.next() {
                            Some('}') => break,
                            Some(letter) => inside.push(letter),
                            None => return Err("has a ${ without an end"),
                        }
                    }
                    out += &substitute(&inside, known)?;
                }
                Some(next) if next.is_ascii_alphabetic() || *next == '_' => {
                    let mut name = String::new();
                    while let Some(letter) = letters.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
                        name.push(letter);
                    }
                    out += known.get(&name).map_or("", String::as_str);
                }
                _ => out.push('$'),
            },
            _ => out.push(letter),
        }
    }
    Ok(out)
}

/// `NAME`, `NAME:-otherwise` or `NAME:+if it has one`.
fn substitute(inside: &str, known: Scope<'_>) -> Result<String, &'static str> {
    let end = inside.find(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_')).unwrap_or(inside.len());
    let (name, rest) = inside.split_at(end);
    let value = known.get(name).filter(|value| !value.is_empty());
    match rest.get(..2) {
        None if rest.is_empty() => Ok(known.get(name).cloned().unwrap_or_default()),
        Some(":-") => value.cloned().map_or_else(|| expand(&rest[2..], known), Ok),
        Some(":+") => value.map_or_else(|| Ok(String::new()), |_| expand(&rest[2..], known)),
        _ => Err("has a ${…} that is not understood here"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(text: &str) -> Result<Plan, ApiError> {
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
    fn a_script_may_stand_behind_run() {
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
    fn a_small_dockerfile_stays_small() {
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
    fn start_commands_are_put_together_as_docker_does() {
        let start = |text: &str| plan(&format!("FROM base\n{text}")).unwrap().start;
        assert_eq!(start("RUN true"), None);
        assert_eq!(start("CMD server --port 1"), Some(vec!["/bin/sh".into(), "-c".into(), "server --port 1".into()]));
        assert_eq!(start("ENTRYPOINT run it\nCMD [\"x\"]"), Some(vec!["/bin/sh".into(), "-c".into(), "run it".into()]));
        assert_eq!(start("CMD [\"x\"]\nENTRYPOINT [\"y\"]"), Some(words("y")));
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_line() {
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
            assert!(error.message.contains(said), "{text}: {}", error.message);
        }
        let without_files = parse("FROM base\n\nCOPY a b").unwrap().plan(&Variables::new(), None).unwrap_err();
        assert!(without_files.message.starts_with("line 3 "), "{}", without_files.message);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(FROM base\n)?([A-Za-z]{1,9} )?[ -~\n\\\\\"'$<{]{0,120}") {
            let _ = plan(&text);
        }
    }
}
