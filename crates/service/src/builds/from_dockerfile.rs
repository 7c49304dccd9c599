//! From a Dockerfile to a build: finds the bases of its stages, and plans their steps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sandling_engine::TemplateError;

use super::base::{BaseError, SCRATCH, replacement};
use super::dockerfile::{BaseInfo, DockerfileOptions, StageBaseName, parse};
use super::machine::Secrets;
use super::packages::PackageError;
use super::registry::{Build, RegisterError};
use super::start::{BuildSpec, Builds, CacheUse, Explain, OnFailure, SaveAs, StageBase, StageSpec, StartError};
use super::steps::{Plan, PlanError};
use super::warm;
use crate::workspaces::WorkspaceName;

/// A template to build from a Dockerfile.
#[derive(Default)]
pub struct DockerfileBuild {
    pub name: String,
    pub replace: bool,
    pub text: String,
    pub options: DockerfileOptions,
    pub secrets: Secrets,
    pub cache: CacheUse,
    pub on_failure: OnFailure,
    /// Whether what `ENTRYPOINT` and `CMD` start is running in the template's sandboxes.
    pub start: bool,
    /// Warm commands, which run after those that the image's label names.
    pub warm: Vec<String>,
    pub vcpus: Option<u32>,
    pub memory_mib: Option<u32>,
    pub disk_mib: Option<u32>,
}

#[derive(Debug, thiserror::Error)]
pub enum DockerfileError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Package(#[from] PackageError),
    #[error(transparent)]
    Name(#[from] TemplateError),
    #[error(transparent)]
    Base(#[from] BaseError),
    #[error(transparent)]
    Register(#[from] RegisterError),
    #[error(transparent)]
    Start(#[from] StartError),
}

/// What a build of a Dockerfile needs before it begins: templates, and images that no template replaces, by their names.
pub fn bases_of_dockerfile(text: &str, options: DockerfileOptions) -> Result<BTreeSet<String>, PlanError> {
    let selection = parse(text)?.select(options)?;
    let names = selection.names().into_iter().filter(|name| *name != SCRATCH);
    Ok(names.map(|name| replacement(name).map_or(name, |(template, _)| template).to_owned()).collect())
}

impl Builds {
    /// Starts a build of a Dockerfile. If that fails, the uploaded files are deleted.
    pub async fn start_dockerfile(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        build: DockerfileBuild,
        explain: Explain,
    ) -> Result<Arc<Build>, DockerfileError> {
        let context = build.options.context.clone();
        let started = self.try_start_dockerfile(workspace, build, explain).await;
        if let (Err(_), Some(hash)) = (&started, &context) {
            self.uploads.forget(workspace.as_str(), hash);
        }
        started
    }

    async fn try_start_dockerfile(
        self: &Arc<Self>,
        workspace: &WorkspaceName,
        build: DockerfileBuild,
        explain: Explain,
    ) -> Result<Arc<Build>, DockerfileError> {
        self.check_name(workspace, &build.name, build.replace)?;
        let (stages, target) = self.plan_dockerfile(workspace, &build).await?;
        let spec = BuildSpec {
            stages,
            target,
            vcpus: build.vcpus,
            memory_mib: build.memory_mib,
            disk_mib: build.disk_mib,
            save_as: SaveAs::Template { name: build.name.clone(), replace: build.replace },
            cache: build.cache,
            secrets: build.secrets,
            on_failure: build.on_failure,
            network: None,
            description: None,
            packages: BTreeSet::new(),
        };
        let registered = self.registry.register(workspace.as_str(), &build.name)?;
        self.start(registered.clone(), spec, explain)?;
        Ok(registered)
    }

    /// The stages of a Dockerfile, with those of images that only files are copied from, and the one to build.
    async fn plan_dockerfile(
        &self,
        workspace: &WorkspaceName,
        build: &DockerfileBuild,
    ) -> Result<(Vec<StageSpec>, usize), DockerfileError> {
        let selection = parse(&build.text)?.select(build.options.clone())?;
        let (mut bases, mut found) = (BTreeMap::new(), BTreeMap::new());
        for (at, base) in selection.bases() {
            let base = match base {
                StageBaseName::Stage(earlier) => (StageBase::Stage(*earlier), None),
                StageBaseName::Named(name) => {
                    let (source, note) = self.find_base(workspace, name).await?;
                    let env = source.process_defaults(&self.engine, workspace.as_str()).map_err(BaseError::from)?.env;
                    found.insert(at, BaseInfo { env, config: source.config() });
                    (StageBase::Source(source), note)
                }
            };
            bases.insert(at, base);
        }
        let planned = selection.plan(&found)?;
        let mut stages = Vec::new();
        for (at, plan) in planned.stages.into_iter().enumerate() {
            let (base, note) = bases.remove(&at).unwrap_or((StageBase::Unused, None));
            let mut plan = plan.unwrap_or_default();
            if !build.start || at != selection.target {
                plan.start = None;
            }
            if at == selection.target {
                plan.warm = [warm::labelled(plan.config.as_ref()), build.warm.clone()].concat();
            }
            stages.push(StageSpec { base, note, plan });
        }
        for image in &planned.images {
            let (source, note) = self.find_base(workspace, image).await?;
            stages.push(StageSpec { base: StageBase::Source(source), note, plan: Plan::default() });
        }
        Ok((stages, selection.target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_needs_the_templates_of_its_stages() {
        let bases = |text: &str| {
            let options = DockerfileOptions { target: Some("app".to_owned()), ..DockerfileOptions::default() };
            bases_of_dockerfile(text, options).unwrap().into_iter().collect::<Vec<_>>().join(" ")
        };
        let text = "ARG VERSION=3.13\nFROM python:${VERSION}-slim AS made\nFROM scratch AS empty\nFROM mine AS app\n\
                    COPY --from=made /a /a\nCOPY --from=empty /b /b\nCOPY --from=tools /c /c\nFROM unused\n";
        assert_eq!(bases(text), "base mine tools");
        assert_eq!(bases("FROM debian:12 AS one\nFROM one AS app\n"), "debian:12");
        assert!(bases_of_dockerfile("RUN true", DockerfileOptions::default()).is_err());
    }
}
