//! The stages of a Dockerfile: which of them a build needs, and what each is made from.

use std::collections::{BTreeMap, BTreeSet};

use sandling_oci::Config;

use super::super::steps::{MOST_STEPS, Plan, PlanError};
use super::flags::leading_flags;
use super::instruction::{Instruction, instructions};
use super::reader::Reader;
use super::words::{Scope, Variables, arguments, expand, expand_all};

/// The `PATH` of an image that sets none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
pub(super) const MOST_BYTES: usize = 256 * 1024;
const PLATFORM: &str = "linux/amd64";
/// Arguments that every Dockerfile may use after an `ARG` without a value.
const PLATFORM_ARGUMENTS: [(&str, &str); 8] = [
    ("BUILDPLATFORM", PLATFORM),
    ("BUILDOS", "linux"),
    ("BUILDARCH", "amd64"),
    ("BUILDVARIANT", ""),
    ("TARGETPLATFORM", PLATFORM),
    ("TARGETOS", "linux"),
    ("TARGETARCH", "amd64"),
    ("TARGETVARIANT", ""),
];
/// Arguments that commands see without an `ARG`.
const PROXY_ARGUMENTS: [&str; 10] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "FTP_PROXY",
    "ftp_proxy",
    "NO_PROXY",
    "no_proxy",
    "ALL_PROXY",
    "all_proxy",
];

/// A Dockerfile whose instructions are known, and whose variables are not expanded yet.
#[derive(Debug)]
pub struct Dockerfile {
    /// The `ARG`s before the first `FROM`.
    global: Vec<Instruction>,
    stages: Vec<Stage>,
}

#[derive(Debug)]
struct Stage {
    from: Instruction,
    instructions: Vec<Instruction>,
}

/// What a client says about a build besides the Dockerfile.
#[derive(Debug, Clone, Default)]
pub struct DockerfileOptions {
    pub build_args: BTreeMap<String, String>,
    /// The stage to build; otherwise the last one.
    pub target: Option<String>,
    /// The hash of the uploaded files.
    pub context: Option<String>,
}

/// What a stage is made from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageBaseName {
    /// An earlier stage.
    Stage(usize),
    /// A template or an image.
    Named(String),
}

/// What a base sets for the stage on top of it.
#[derive(Debug, Clone, Default)]
pub struct BaseInfo {
    pub env: Variables,
    pub config: Config,
}

/// The stages that a build needs.
#[derive(Debug)]
pub struct Selection {
    file: Dockerfile,
    options: DockerfileOptions,
    global: Variables,
    bases: Vec<StageBaseName>,
    needed: Vec<bool>,
    /// What the needed stages copy files from, if it is no stage.
    copied_from: BTreeSet<String>,
    pub target: usize,
}

/// The plans of all stages, in their order. A stage that is not needed has none.
#[derive(Debug)]
pub struct Planned {
    pub stages: Vec<Option<Plan>>,
    /// Images that only files are copied from. They count as stages after those of the Dockerfile.
    pub images: Vec<String>,
}

/// Reads the instructions of a Dockerfile.
pub fn parse(text: &str) -> Result<Dockerfile, PlanError> {
    if text.len() > MOST_BYTES {
        return Err(PlanError::DockerfileTooLarge { most_kib: MOST_BYTES >> 10 });
    }
    let mut file = Dockerfile { global: Vec::new(), stages: Vec::new() };
    for instruction in instructions(text)? {
        match (instruction.keyword.as_str(), file.stages.last_mut()) {
            ("FROM", _) => file.stages.push(Stage { from: instruction, instructions: Vec::new() }),
            (_, Some(stage)) => stage.instructions.push(instruction),
            ("ARG", None) => file.global.push(instruction),
            (_, None) => return Err(instruction.wrong("comes before FROM")),
        }
    }
    if file.stages.is_empty() { Err(PlanError::NoBase) } else { Ok(file) }
}

/// The image of a `FROM`, and the name of its stage.
fn image_and_name(from: &Instruction, global: Scope<'_>) -> Result<(String, Option<String>), PlanError> {
    let words = expand_all(from, global)?;
    let (flags, words): (Vec<_>, Vec<_>) = words.into_iter().partition(|word| word.starts_with("--"));
    for flag in &flags {
        match flag.strip_prefix("--platform=") {
            Some("linux/amd64" | "linux/x86_64" | "linux/amd64/v1" | "linux/amd64/v2" | "amd64" | "linux") => {}
            Some(other) => {
                return Err(
                    from.wrong(format_args!("is for the platform {other}, and cannot have any but {PLATFORM} here"))
                );
            }
            None => return Err(from.wrong(format_args!("cannot have {flag} here"))),
        }
    }
    match words.as_slice() {
        [image] if !image.is_empty() => Ok((image.clone(), None)),
        [image, word, name] if word.eq_ignore_ascii_case("as") && !image.is_empty() => {
            Ok((image.clone(), Some(name.to_ascii_lowercase())))
        }
        _ => Err(from.wrong("needs the name of an image")),
    }
}

impl Dockerfile {
    /// Expands the bases, and finds the stages that the target needs.
    pub fn select(self, options: DockerfileOptions) -> Result<Selection, PlanError> {
        let platform = PLATFORM_ARGUMENTS.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let mut global: Variables = platform.into();
        for instruction in &self.global {
            for (name, default) in arguments(instruction, Scope::of(&global, instruction.escape))? {
                let value = options.build_args.get(&name).cloned().or(default);
                global.extend(value.map(|value| (name, value)));
            }
        }
        let (mut bases, mut names) = (Vec::new(), Vec::new());
        for stage in &self.stages {
            let (image, name) = image_and_name(&stage.from, Scope::of(&global, stage.from.escape))?;
            let earlier = stage_named(&names, &image);
            bases.push(earlier.map_or(StageBaseName::Named(image), StageBaseName::Stage));
            names.push(name);
        }
        let last = self.stages.len() - 1;
        let target = match &options.target {
            None => last,
            Some(name) => stage_named(&names, name)
                .or_else(|| name.parse().ok().filter(|number| *number <= last))
                .ok_or_else(|| PlanError::NoStage(name.clone()))?,
        };
        let (needed, copied_from) = (vec![false; last + 1], BTreeSet::new());
        let mut selection = Selection { file: self, options, global, bases, needed, copied_from, target };
        selection.find_needed(&names)?;
        Ok(selection)
    }
}

/// The last stage of this name. Later stages may use the same name again.
fn stage_named(names: &[Option<String>], name: &str) -> Option<usize> {
    names.iter().rposition(|known| known.as_deref() == Some(name.to_ascii_lowercase().as_str()))
}

impl Selection {
    fn find_needed(&mut self, names: &[Option<String>]) -> Result<(), PlanError> {
        self.needed[self.target] = true;
        // Stages use only earlier ones.
        for at in (0..=self.target).rev().collect::<Vec<_>>() {
            if !self.needed[at] {
                continue;
            }
            if let StageBaseName::Stage(base) = self.bases[at] {
                self.needed[base] = true;
            }
            let stage = &self.file.stages[at];
            for instruction in &stage.instructions {
                for from in origins(instruction, Scope::of(&self.global, instruction.escape))? {
                    match stage_reference(&names[..at], &from) {
                        Some(earlier) => self.needed[earlier] = true,
                        None => {
                            self.copied_from.insert(from);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// What each needed stage is made from.
    pub fn bases(&self) -> impl Iterator<Item = (usize, &StageBaseName)> {
        self.bases.iter().enumerate().filter(|(at, _)| self.needed[*at])
    }

    /// The templates and images that the needed stages are made from, or copy files from.
    pub fn names(&self) -> BTreeSet<&str> {
        let bases = self.bases().filter_map(|(_, base)| match base {
            StageBaseName::Named(name) => Some(name.as_str()),
            StageBaseName::Stage(_) => None,
        });
        bases.chain(self.copied_from.iter().map(String::as_str)).collect()
    }

    /// The steps of all needed stages. `found` describes the bases that are no stages.
    pub fn plan(&self, found: &BTreeMap<usize, BaseInfo>) -> Result<Planned, PlanError> {
        let mut planned = Planned { stages: Vec::new(), images: Vec::new() };
        let (mut names, mut ends, mut used, mut steps) = (Vec::new(), Vec::<Option<StageEnd>>::new(), Vec::new(), 0);
        used.extend(self.file.global.iter().filter_map(|it| it.rest.split('=').next().map(str::to_owned)));
        for (at, stage) in self.file.stages.iter().enumerate() {
            let (_, name) = image_and_name(&stage.from, Scope::of(&self.global, stage.from.escape))?;
            if !self.needed[at] {
                planned.stages.push(None);
                ends.push(None);
                names.push(name);
                continue;
            }
            let begin = match &self.bases[at] {
                StageBaseName::Stage(base) => ends[*base].clone().unwrap_or_default(),
                StageBaseName::Named(_) => {
                    let info = found.get(&at).cloned().unwrap_or_default();
                    StageEnd { env: info.env, config: info.config, starts: false }
                }
            };
            let mut reader = Reader::new(self, begin, &names, &mut planned.images);
            reader.env.entry("PATH".to_owned()).or_insert_with(|| PATH.to_owned());
            reader.triggers(&stage.from)?;
            for instruction in &stage.instructions {
                reader.take(instruction)?;
                if steps + reader.actions.len() > MOST_STEPS {
                    return Err(PlanError::TooManySteps);
                }
            }
            let (mut plan, end, arguments) = reader.finish();
            used.extend(arguments);
            steps += plan.actions.len();
            if at == self.target {
                let unused = self.options.build_args.keys();
                let unused: Vec<_> =
                    unused.filter(|name| !used.contains(name) && !is_predefined(name)).cloned().collect();
                if !unused.is_empty() {
                    plan.warn(format!("no ARG of the Dockerfile takes the build argument {}", unused.join(", ")));
                }
            }
            planned.stages.push(Some(plan));
            ends.push(Some(end));
            names.push(name);
        }
        Ok(planned)
    }

    pub(super) fn global(&self) -> &Variables {
        &self.global
    }

    pub(super) fn options(&self) -> &DockerfileOptions {
        &self.options
    }

    /// How many stages the Dockerfile has.
    pub fn count(&self) -> usize {
        self.file.stages.len()
    }

    /// The proxies among the build arguments, which need no `ARG`.
    pub(super) fn proxies(&self) -> Variables {
        let proxies = self.options.build_args.iter().filter(|(name, _)| PROXY_ARGUMENTS.contains(&name.as_str()));
        proxies.map(|(name, value)| (name.clone(), value.clone())).collect()
    }
}

fn is_predefined(name: &str) -> bool {
    PROXY_ARGUMENTS.contains(&name) || PLATFORM_ARGUMENTS.iter().any(|(known, _)| *known == name)
}

/// What a stage sets for stages on top of it.
#[derive(Debug, Clone, Default)]
pub(super) struct StageEnd {
    pub(super) env: Variables,
    pub(super) config: Config,
    /// Whether the Dockerfile itself says what to run.
    pub(super) starts: bool,
}

/// An earlier stage by its name or number.
pub(super) fn stage_reference(names: &[Option<String>], text: &str) -> Option<usize> {
    stage_named(names, text).or_else(|| text.parse().ok().filter(|number| *number < names.len()))
}

/// What the flags of an instruction name as the origin of files.
fn origins(it: &Instruction, known: Scope<'_>) -> Result<Vec<String>, PlanError> {
    let mut found = Vec::new();
    for flag in leading_flags(&it.rest).0 {
        let flag = expand(flag, known).map_err(|what| it.wrong(what))?;
        if let Some(from) = flag.strip_prefix("--from=") {
            found.push(from.to_owned());
        }
        if let Some(mount) = flag.strip_prefix("--mount=") {
            found.extend(mount.split(',').filter_map(|option| option.strip_prefix("from=")).map(str::to_owned));
        }
    }
    Ok(found)
}
