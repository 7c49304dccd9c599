//! Template commands without a server.

use std::sync::Arc;
use std::time::Instant;

use anyhow::bail;
use sandling_api::{listed_template, template_view};
use sandling_engine::{DEFAULT_WORKSPACE, NetworkConfig, with_causes};
use sandling_image::{BuildOptions, Existing, OwnKernel, Recipe};
use sandling_service::{
    Build as BuildProgress, CacheUse, DockerfileBuild, DockerfileOptions, OnFailure, PackageBuild, Service,
    ServiceSettings, Stage, WorkspaceName,
};
use sandling_wire::TemplateVersion;
use tokio_util::io::ReaderStream;

use super::dockerfile::{Archive, Source};
use super::{archive, list};
use crate::commands::{open_engine, open_engine_with, setup};
use crate::options::{Build, Common, TemplateCommand};
use crate::show;

pub async fn template(common: &Common, command: &TemplateCommand) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Ls { json } => ls(common, *json).await,
        TemplateCommand::Inspect { name, verify } => inspect(common, name, *verify).await,
        TemplateCommand::History { name, json } => {
            let engine = open_engine(common).await?;
            let current = engine.snapshots().of_template(DEFAULT_WORKSPACE, name)?.map(|info| info.digest);
            let versions = engine.snapshots().versions(DEFAULT_WORKSPACE, name)?.into_iter();
            let versions = versions.map(|kept| TemplateVersion {
                created_at: kept.snapshot.created_at.to_string(),
                size_bytes: kept.snapshot.memory_bytes + kept.snapshot.disk_bytes,
                current: Some(&kept.snapshot.digest) == current.as_ref(),
                digest: kept.snapshot.digest,
            });
            list::print_versions(serde_json::to_value(versions.collect::<Vec<_>>())?, *json)
        }
        TemplateCommand::Gc { json } => {
            let engine = open_engine(common).await?;
            let service = Service::open(engine.clone(), ServiceSettings::default())?;
            let freed = service.garbage.empty_caches(&WorkspaceName::default()).await?;
            engine.close().await;
            list::print_freed(freed.into(), *json)
        }
        TemplateCommand::Build(options) if options.is_built_on_host() => build_image(common, options).await,
        TemplateCommand::Build(options) => build_steps(common, options).await,
        TemplateCommand::Export { name, file } => archive::export(common, name, file).await,
        TemplateCommand::Import { file, name, replace } => {
            let existing = if *replace { Existing::Replace } else { Existing::Keep };
            archive::import(common, file, name.as_deref(), existing).await
        }
        TemplateCommand::Pull { .. } => bail!("a node copies templates while it serves; start `sandling serve` first"),
        TemplateCommand::Rm { name } => {
            let freed = open_engine(common).await?.remove_template(DEFAULT_WORKSPACE, name).await?;
            list::print_removed(name, freed)
        }
    }
}

/// Builds an image from Debian's archive on this machine.
async fn build_image(common: &Common, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let recipe = recipe(options)?;
    setup::install_missing_packages(setup::Purpose::BuildTemplates)?;
    let engine = open_engine(common).await?;
    let kernel = options.kernel.clone().map(|vmlinuz| OwnKernel { vmlinuz, modules: options.modules.clone() });
    let build = BuildOptions { force: options.force, upgrade: options.upgrade, kernel };
    let built = setup::build(&engine, recipe, build).await;
    engine.close().await;
    let built = built?;
    show::line(format_args!(
        "{} is ready: {} on disk, {} MiB of memory, {:.0} s",
        built.name,
        show::bytes(built.size_bytes),
        built.memory_mib,
        started.elapsed().as_secs_f64()
    ))
}

/// Runs the steps of a Dockerfile, or those that add packages, in a machine of this process.
async fn build_steps(common: &Common, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let source = if options.is_dockerfile() { Some(Source::read(options)?) } else { None };
    let network = NetworkConfig { builds: options.network.build_network.clone(), ..options.operator.config(common)? };
    let settings = ServiceSettings { images: options.images.settings()?, ..ServiceSettings::default() };
    let engine = open_engine_with(common, network).await?;
    let service = Service::open(engine.clone(), settings)?;
    let build = match source {
        Some(source) => start_dockerfile(&service, source, options).await,
        None => start_packages(&service, options),
    };
    let built = match build {
        Ok(build) => follow(&build).await,
        Err(error) => Err(error),
    };
    engine.close().await;
    show::line(format_args!(
        "{} is ready: {} on disk, {:.0} s",
        options.name,
        show::bytes(built?),
        started.elapsed().as_secs_f64()
    ))
}

fn start_packages(service: &Service, options: &Build) -> anyhow::Result<Arc<BuildProgress>> {
    let build = PackageBuild {
        name: options.name.clone(),
        from: options.from.clone(),
        packages: options.added()?,
        replace: true,
        cache: cache_use(options),
        on_failure: OnFailure::End,
        warm: options.warm.clone(),
        vcpus: options.cpus,
        memory_mib: options.memory,
        disk_mib: options.disk,
    };
    Ok(service.builds.start_packages(&WorkspaceName::default(), build, |failure| with_causes(&failure))?)
}

fn cache_use(options: &Build) -> CacheUse {
    if options.ignores_cache() { CacheUse::Ignore } else { CacheUse::Use }
}

async fn start_dockerfile(service: &Service, source: Source, options: &Build) -> anyhow::Result<Arc<BuildProgress>> {
    let context = match source.archive()? {
        None => None,
        Some(Archive { hash, file }) => {
            let body = ReaderStream::new(tokio::fs::File::from_std(file));
            service.builds.uploads.store(DEFAULT_WORKSPACE, &hash, body).await?;
            Some(hash)
        }
    };
    let build = DockerfileBuild {
        name: options.name.clone(),
        replace: true,
        text: source.text,
        options: DockerfileOptions { build_args: source.build_args, target: options.target.clone(), context },
        secrets: source.secrets,
        cache: cache_use(options),
        on_failure: OnFailure::End,
        start: options.start,
        warm: options.warm.clone(),
        vcpus: options.cpus,
        memory_mib: options.memory,
        disk_mib: options.disk,
    };
    Ok(service.builds.start_dockerfile(&WorkspaceName::default(), build, |failure| with_causes(&failure)).await?)
}

/// Shows a build's steps until it ends, and returns its size.
async fn follow(build: &BuildProgress) -> anyhow::Result<u64> {
    let (mut progress, mut shown) = (build.progress(), 0);
    let screen = show::Progress::new();
    let end = loop {
        let (lines, stage) = {
            let now = progress.borrow_and_update();
            let lines: Vec<_> = now.lines.iter().skip(shown).map(|line| line.text.clone()).collect();
            (lines, now.stage.clone())
        };
        shown += lines.len();
        lines.iter().for_each(|line| screen.print(line));
        match stage {
            Stage::Done { bytes, .. } => break Ok(bytes),
            Stage::Failed { why, .. } => break Err(anyhow::anyhow!(why)),
            Stage::Registered | Stage::Queued | Stage::Running => progress.changed().await?,
        }
    };
    screen.done();
    end
}

fn recipe(options: &Build) -> anyhow::Result<Recipe> {
    let mut recipe = match sandling_image::resolve(&options.name) {
        Ok(built_in) => built_in.recipe,
        Err(_) => sandling_image::resolve(&options.from)?.recipe.renamed(&options.name)?,
    };
    recipe.memory_mib = options.memory.unwrap_or(recipe.memory_mib);
    recipe.vcpus = options.cpus.unwrap_or(recipe.vcpus);
    recipe.disk_mib = options.disk.unwrap_or(recipe.disk_mib);
    recipe.check()?;
    Ok(recipe)
}

async fn ls(common: &Common, json: bool) -> anyhow::Result<()> {
    let templates = open_engine(common).await?.list_templates(DEFAULT_WORKSPACE)?;
    let views: Vec<_> = templates.into_iter().map(|template| listed_template(DEFAULT_WORKSPACE, template)).collect();
    list::print(serde_json::to_value(views)?, json)
}

async fn inspect(common: &Common, name: &str, verify: bool) -> anyhow::Result<()> {
    let engine = open_engine(common).await?;
    if let Some(template) = engine.snapshots().template_named(DEFAULT_WORKSPACE, name)? {
        if verify {
            bail!("`{name}` was built from steps; --verify checks built-in templates and those from images");
        }
        return show::json(&template_view(DEFAULT_WORKSPACE, template));
    }
    let image = engine.machines().inspect_template(DEFAULT_WORKSPACE, name)?;
    if verify {
        image.verify_full()?;
    }
    show::json(&image.manifest)
}
