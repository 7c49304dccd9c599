//! Turns the instructions of one stage into steps and a configuration.

use sandling_oci::Config;
use serde_json::json;

use super::super::steps::{Action, FileSource, MOST_STEPS, PlaceFiles, Plan, PlanDefaults, PlanError};
use super::flags::{flags, flags_and_words};
use super::health::health;
use super::instruction::{Instruction, array};
use super::mounts::mount;
use super::stages::{Selection, StageEnd, stage_reference};
use super::words::{Scope, Variables, arguments, expand_all, expand_body, pairs};
use crate::limits::{check_env, parse_mode};

const DEFAULTS: PlanDefaults = PlanDefaults { user: "root", workdir: Some("/") };
const DEFAULT_SHELL: [&str; 2] = ["/bin/sh", "-c"];
const NOT_IN_TRIGGERS: [&str; 3] = ["ONBUILD", "FROM", "MAINTAINER"];

pub(super) struct Reader<'a> {
    selection: &'a Selection,
    /// The names of the stages before this one.
    names: &'a [Option<String>],
    images: &'a mut Vec<String>,
    pub(super) env: Variables,
    arguments: Variables,
    /// The names of all arguments.
    declared: Vec<String>,
    config: Config,
    starts: bool,
    pub(super) actions: Vec<Action>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        selection: &'a Selection,
        begin: StageEnd,
        names: &'a [Option<String>],
        images: &'a mut Vec<String>,
    ) -> Self {
        let StageEnd { env, config, starts } = begin;
        let arguments = selection.proxies();
        let actions = if arguments.is_empty() { Vec::new() } else { vec![Action::Arg(arguments.clone())] };
        Self { selection, names, images, env, arguments, declared: Vec::new(), config, starts, actions }
    }

    /// Carries out what the base's `ONBUILD` instructions say.
    pub(super) fn triggers(&mut self, from: &Instruction) -> Result<(), PlanError> {
        for text in self.config.on_build.take().unwrap_or_default() {
            let trigger = Instruction::of_trigger(&text, from.line, from.escape);
            self.actions.push(Action::Note(format!("ONBUILD of the base: {text}")));
            self.take(&trigger)?;
        }
        Ok(())
    }

    pub(super) fn take(&mut self, it: &Instruction) -> Result<(), PlanError> {
        match it.keyword.as_str() {
            "RUN" => self.run(it)?,
            "COPY" | "ADD" => self.copy(it)?,
            "ENV" => {
                let said = pairs(it, self.known(it))?;
                check_env(&said)?;
                self.env.extend(said.clone());
                self.actions.push(Action::Env(said));
            }
            "ARG" => self.argument(it)?,
            "WORKDIR" => self.actions.push(Action::Workdir(self.one(it)?)),
            "USER" => self.actions.push(Action::User(self.one(it)?)),
            "SHELL" => {
                let shell = it.array().filter(|shell| !shell.is_empty());
                self.config.shell = Some(shell.ok_or_else(|| it.wrong("needs a JSON array"))?);
            }
            "ENTRYPOINT" => {
                self.config.entrypoint = self.command(it);
                // As in Docker, a new entrypoint drops an earlier CMD.
                self.config.cmd = None;
                self.starts = true;
            }
            "CMD" => {
                self.config.cmd = self.command(it);
                self.starts = true;
            }
            "LABEL" => {
                let said = pairs(it, self.known(it))?;
                self.config.labels.get_or_insert_default().extend(said);
            }
            "MAINTAINER" => {
                self.config.labels.get_or_insert_default().insert("maintainer".to_owned(), it.rest.clone());
            }
            "EXPOSE" => self.expose(it)?,
            "VOLUME" => {
                let paths = match it.array() {
                    Some(paths) => paths,
                    None => expand_all(it, self.known(it))?,
                };
                let volumes = self.config.volumes.get_or_insert_default();
                volumes.extend(paths.into_iter().map(|path| (path, json!({}))));
                self.actions.push(Action::Note("a VOLUME is a directory like any other here".to_owned()));
            }
            "STOPSIGNAL" => self.config.stop_signal = Some(self.one(it)?),
            "HEALTHCHECK" => self.config.healthcheck = Some(health(it, self.known(it))?),
            "ONBUILD" => {
                let inner = Instruction::of_trigger(&it.rest, it.line, it.escape);
                if inner.keyword.is_empty() || NOT_IN_TRIGGERS.contains(&inner.keyword.as_str()) {
                    return Err(it.wrong(format_args!("cannot be followed by {}", inner.keyword)));
                }
                self.config.on_build.get_or_insert_default().push(it.rest.clone());
            }
            _ => return Err(it.wrong("is not understood here")),
        }
        Ok(())
    }

    /// The stage's steps, what stages on top of it inherit, and the names of its arguments.
    pub(super) fn finish(self) -> (Plan, StageEnd, Vec<String>) {
        let parts = [&self.config.entrypoint, &self.config.cmd];
        let start: Vec<_> = parts.into_iter().flatten().flatten().cloned().collect();
        let start = (self.starts && !start.is_empty()).then_some(start);
        let config = Some(self.config.clone());
        let plan = Plan { actions: self.actions, start, defaults: DEFAULTS, config, ..Plan::default() };
        (plan, StageEnd { env: self.env, config: self.config, starts: self.starts }, self.declared)
    }

    fn in_shell(&self, line: &str) -> Vec<String> {
        let shell = self.config.shell.clone().unwrap_or_else(|| DEFAULT_SHELL.map(str::to_owned).to_vec());
        [shell, vec![line.to_owned()]].concat()
    }

    /// The variables that `$NAME` can refer to.
    fn known(&self, it: &Instruction) -> Scope<'_> {
        Scope { maps: [Some(&self.env), Some(&self.arguments)], escape: it.escape }
    }

    fn one(&self, it: &Instruction) -> Result<String, PlanError> {
        match expand_all(it, self.known(it))?.as_slice() {
            [word] if !word.is_empty() => Ok(word.clone()),
            _ => Err(it.wrong("needs one argument")),
        }
    }

    /// A command in one of its two forms.
    fn command(&self, it: &Instruction) -> Option<Vec<String>> {
        let words = it.array().unwrap_or_else(|| if it.rest.is_empty() { Vec::new() } else { self.in_shell(&it.rest) });
        (!words.is_empty()).then_some(words)
    }

    fn argument(&mut self, it: &Instruction) -> Result<(), PlanError> {
        let mut said = Variables::new();
        for (name, default) in arguments(it, self.known(it))? {
            let given = self.selection.options().build_args.get(&name).cloned();
            let value = given.or(default).or_else(|| self.selection.global().get(&name).cloned());
            self.declared.push(name.clone());
            said.extend(value.map(|value| (name, value)));
        }
        check_env(&said)?;
        self.arguments.extend(said.clone());
        self.actions.push(Action::Arg(said));
        Ok(())
    }

    fn expose(&mut self, it: &Instruction) -> Result<(), PlanError> {
        for port in expand_all(it, self.known(it))? {
            let (numbers, protocol) = port.split_once('/').unwrap_or((&port, "tcp"));
            let is_port = |text: &str| text.parse::<u16>().is_ok();
            let fits = numbers.split('-').all(is_port) && ["tcp", "udp", "sctp"].contains(&protocol);
            if !fits {
                return Err(it.wrong(format_args!("needs a port, and {port} is none")));
            }
            self.config.exposed_ports.get_or_insert_default().insert(format!("{numbers}/{protocol}"), json!({}));
        }
        Ok(())
    }

    fn run(&mut self, it: &Instruction) -> Result<(), PlanError> {
        let (flags, rest) = flags(it, self.known(it))?;
        let (mut mounts, mut network) = (Vec::new(), true);
        for (name, value) in flags {
            match (name.as_str(), value.as_str()) {
                ("--mount", value) => {
                    mounts.push(mount(it, value, |from, source| {
                        self.origin(it, from, vec![source.to_owned()], Vec::new())
                    })?);
                }
                ("--network", "default") => {}
                ("--network", "none") => network = false,
                ("--security", "sandbox") => {}
                (name, value) => return Err(it.wrong(format_args!("cannot have {name}={value} here"))),
            }
        }
        if rest.is_empty() {
            return Err(it.wrong("needs a command"));
        }
        let argv = match (it.here.as_slice(), array(rest)) {
            ([script], _) if rest == script.word => match script.body.strip_prefix("#!") {
                Some(_) => script_with_interpreter(&script.body),
                None => self.in_shell(&script.body),
            },
            ([], Some(words)) if !words.is_empty() => words,
            ([], _) => self.in_shell(rest),
            (texts, _) => {
                let texts = texts.iter().map(|here| format!("{}{}\n", here.body, here.mark));
                self.in_shell(&format!("{rest}\n{}", texts.collect::<String>()))
            }
        };
        self.actions.push(Action::Run { argv, user: None, text: rest.to_owned(), mounts, network });
        Ok(())
    }

    fn copy(&mut self, it: &Instruction) -> Result<(), PlanError> {
        let (flags, mut words) = flags_and_words(it, self.known(it))?;
        let (mut owner, mut mode, mut from, mut checksum, mut excludes) = (None, None, None, None, Vec::new());
        let mut unpack = it.keyword == "ADD";
        for (name, value) in flags {
            match (name.as_str(), it.keyword.as_str()) {
                ("--chown", _) => owner = Some(value),
                ("--chmod", _) => mode = Some(parse_mode(&value).map_err(|error| it.wrong(error))?),
                ("--link", _) => {}
                ("--exclude", _) => excludes.push(value),
                ("--from", "COPY") => from = Some(value),
                ("--checksum", "ADD") => checksum = Some(sha256(it, &value)?),
                ("--unpack", "ADD") => unpack = value != "false",
                (other, _) => return Err(it.wrong(format_args!("cannot have {other} here"))),
            }
        }
        let missing = || it.wrong("needs a source and a target");
        let target = words.pop().filter(|target| !words.is_empty() && !target.is_empty()).ok_or_else(missing)?;
        if words.len() > MOST_STEPS {
            return Err(PlanError::TooManySteps);
        }
        let into = words.len() > 1;
        let text = format!("{} {} {target}", it.keyword, words.join(" "));
        let mut push = |from, unpack| {
            let (target, owner, text) = (target.clone(), owner.clone(), text.clone());
            self.actions.push(Action::Place(PlaceFiles { from, target, into, owner, mode, unpack, text }));
        };
        let (texts, words): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| word.contains("<<") && !it.here.is_empty());
        if !texts.is_empty() {
            let known = Scope { maps: [Some(&self.env), Some(&self.arguments)], escape: it.escape };
            let mut files = Vec::new();
            for (document, _) in it.here.iter().zip(&texts) {
                let body = match document.expands {
                    true => expand_body(&document.body, known).map_err(|what| it.wrong(what))?,
                    false => document.body.clone(),
                };
                files.push((document.mark.clone(), body));
            }
            push(FileSource::Text(files), false);
        }
        let (urls, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| is_address(word));
        for url in urls {
            let source = address(it, url, checksum.clone())?;
            push(source, false);
        }
        if words.is_empty() {
            return Ok(());
        }
        if checksum.is_some() {
            return Err(it.wrong("can have --checksum only for an address"));
        }
        let source = self.origin(it, from.as_deref(), words, excludes)?;
        let (target, owner) = (target.clone(), owner.clone());
        self.actions.push(Action::Place(PlaceFiles { from: source, target, into, owner, mode, unpack, text }));
        Ok(())
    }

    /// Where files come from: the uploaded files, an earlier stage, or another image.
    fn origin(
        &mut self,
        it: &Instruction,
        from: Option<&str>,
        sources: Vec<String>,
        excludes: Vec<String>,
    ) -> Result<FileSource, PlanError> {
        for source in &sources {
            if source.split('/').any(|part| part == "..") {
                return Err(it.wrong("cannot leave the directory of the build"));
            }
        }
        let Some(from) = from else {
            let hash = self.selection.options().context.clone();
            let hash = hash.ok_or_else(|| it.wrong("needs files, and none came with the Dockerfile"))?;
            return Ok(FileSource::Context { hash, sources, excludes });
        };
        if !excludes.is_empty() {
            return Err(it.wrong("cannot have --exclude together with --from here"));
        }
        if from.is_empty() {
            return Err(it.wrong("needs the name of a stage or an image after from="));
        }
        let stage = stage_reference(self.names, from).unwrap_or_else(|| {
            let known = self.images.iter().position(|image| image == from);
            let at = known.unwrap_or_else(|| {
                self.images.push(from.to_owned());
                self.images.len() - 1
            });
            self.selection.count() + at
        });
        Ok(FileSource::Stage { stage, sources })
    }
}

/// A script that names its own interpreter, which reads it from its arguments: `sh -c` would ignore the first line.
fn script_with_interpreter(script: &str) -> Vec<String> {
    let place = "/dev/shm/.run";
    let quoted = script.replace('\'', "'\\''");
    let line =
        format!("printf %s '{quoted}' >{place} && chmod 700 {place} && {place}; code=$?; rm -f {place}; exit $code");
    vec!["/bin/sh".to_owned(), "-c".to_owned(), line]
}

fn is_address(source: &str) -> bool {
    source.contains("://") || source.starts_with("git@")
}

fn address(it: &Instruction, url: String, checksum: Option<String>) -> Result<FileSource, PlanError> {
    if it.keyword == "COPY" {
        return Err(it.wrong("takes no address; use ADD"));
    }
    let path = url.split(['?', '#']).next().unwrap_or_default();
    if !url.starts_with("https://") && !url.starts_with("http://") || path.ends_with(".git") {
        return Err(it.wrong(format_args!("takes no repository here: RUN git clone {url}")));
    }
    let name = path.splitn(4, '/').nth(3).and_then(|path| path.rsplit('/').next()).unwrap_or_default().to_owned();
    if name.is_empty() {
        return Err(it.wrong(format_args!("needs an address that ends with the name of a file, and {url} does not")));
    }
    Ok(FileSource::Url { url, name, sha256: checksum })
}

fn sha256(it: &Instruction, value: &str) -> Result<String, PlanError> {
    let digest =
        value.strip_prefix("sha256:").filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()));
    digest.map(str::to_ascii_lowercase).ok_or_else(|| it.wrong("needs a checksum of the form sha256:HEX"))
}
