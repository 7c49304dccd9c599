//! Turns instructions into steps and the start command.

use super::super::steps::{Action, MOST_STEPS, Plan, PlanDefaults, PlanError};
use super::instruction::{Instruction, array};
use super::words::{Scope, Variables, arguments, expand, expand_all, split};
use crate::limits::{check_env, parse_mode};

const DEFAULTS: PlanDefaults = PlanDefaults { user: "root", workdir: Some("/") };
const WITHOUT_MEANING: [&str; 6] = ["EXPOSE", "HEALTHCHECK", "LABEL", "MAINTAINER", "STOPSIGNAL", "VOLUME"];
const ARCHIVES: [&str; 6] = [".tar", ".tgz", ".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst"];

/// A command in one of its two forms.
pub(super) enum Form {
    Line(String),
    Words(Vec<String>),
}

pub(super) struct Reader<'a> {
    pub(super) global: &'a Variables,
    pub(super) context: Option<&'a str>,
    pub(super) env: Variables,
    pub(super) arguments: Variables,
    pub(super) shell: Vec<String>,
    pub(super) entrypoint: Option<Form>,
    pub(super) command: Option<Form>,
    pub(super) actions: Vec<Action>,
}

impl Reader<'_> {
    pub(super) fn take(&mut self, it: &Instruction) -> Result<(), PlanError> {
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
                // A group is ignored, because every user here has a group of its own.
                self.actions.push(Action::User(user.split(':').next().unwrap_or_default().to_owned()));
            }
            "SHELL" => {
                let shell = it.array().filter(|shell| !shell.is_empty());
                self.shell = shell.ok_or_else(|| it.wrong("needs a JSON array"))?;
            }
            "ENTRYPOINT" => {
                self.entrypoint = form(it);
                // As in Docker, a new entrypoint drops an earlier CMD.
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

    pub(super) fn plan(self) -> Plan {
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
        Plan { actions: self.actions, start, ready: None, defaults: DEFAULTS }
    }

    fn in_shell(&self, line: &str) -> Vec<String> {
        self.shell.iter().cloned().chain([line.to_owned()]).collect()
    }

    /// The variables that `$NAME` can refer to.
    fn known(&self) -> Scope<'_> {
        Scope([Some(&self.env), Some(&self.arguments)])
    }

    fn one(&self, it: &Instruction) -> Result<String, PlanError> {
        match expand_all(it, self.known())?.as_slice() {
            [word] if !word.is_empty() => Ok(word.clone()),
            _ => Err(it.wrong("needs one argument")),
        }
    }

    fn run(&mut self, it: &Instruction) -> Result<(), PlanError> {
        let mut rest = it.rest.as_str();
        while rest.starts_with("--") {
            let (flag, more) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
            // A cache mount only makes a build faster.
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

    fn variables(&mut self, it: &Instruction) -> Result<(), PlanError> {
        let known = self.known();
        let words = split(&it.rest);
        let mut said = Variables::new();
        match words.as_slice() {
            [name, _, ..] if !name.contains('=') => {
                // The old form: the first word is the name, and the rest is the value.
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

    fn copy(&mut self, it: &Instruction) -> Result<(), PlanError> {
        if it.here.is_some() {
            return Err(it.wrong("of a text in the Dockerfile is not understood here"));
        }
        let (flags, mut words) = flags(it, self.known())?;
        let (mut owner, mut mode) = ("root".to_owned(), None);
        for flag in flags {
            match flag.split_once('=').unwrap_or((&flag, "")) {
                ("--chown", value) => owner = value.to_owned(),
                ("--chmod", value) => mode = Some(parse_mode(value)?),
                ("--link", _) => {}
                ("--from", _) => return Err(it.wrong("cannot take from another image or stage here")),
                (other, _) => return Err(it.wrong(format_args!("cannot have {other} here"))),
            }
        }
        let target =
            words.pop().filter(|_| !words.is_empty()).ok_or_else(|| it.wrong("needs a source and a target"))?;
        if words.len() > MOST_STEPS {
            return Err(PlanError::TooManySteps);
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

/// A source as a path among the uploaded files.
fn local(it: &Instruction, source: &str) -> Result<String, PlanError> {
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

/// The `--flags` of an instruction and the arguments after them.
fn flags(it: &Instruction, known: Scope<'_>) -> Result<(Vec<String>, Vec<String>), PlanError> {
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
