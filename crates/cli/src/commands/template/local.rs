//! Template commands without a server.

use std::sync::Arc;
use std::time::Instant;

use sandling_api::template_view;
use sandling_engine::DEFAULT_WORKSPACE;
use sandling_image::{BuildOptions, OwnKernel, Recipe};

use super::list;
use crate::commands::open_engine;
use crate::options::{Build, Common, TemplateCommand};
use crate::show;

pub async fn template(common: &Common, command: &TemplateCommand) -> anyhow::Result<()> {
    match command {
        TemplateCommand::Build(options) => build(common, options).await,
        TemplateCommand::Ls { json } => ls(common, *json).await,
        TemplateCommand::Inspect { name, verify } => inspect(common, name, *verify).await,
        TemplateCommand::Rm { name } => Ok(open_engine(common).await?.remove_template(DEFAULT_WORKSPACE, name).await?),
    }
}

async fn build(common: &Common, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let recipe = recipe(options)?;
    let engine = open_engine(common).await?;
    let progress = Arc::new(show::Progress::new());
    let steps = progress.clone();
    let kernel = options.kernel.clone().map(|vmlinuz| OwnKernel { vmlinuz, modules: options.modules.clone() });
    let build = BuildOptions { force: options.force, upgrade: options.upgrade, kernel };
    let built = engine.machines().build_template(recipe, build, move |step| steps.step(&step)).await;
    progress.done();
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

fn recipe(options: &Build) -> anyhow::Result<Recipe> {
    let mut recipe = match sandling_image::resolve(&options.name) {
        Ok(built_in) if options.packages.is_empty() && options.npm.is_empty() => built_in.recipe,
        _ => {
            let from = sandling_image::resolve(&options.from)?.recipe;
            let custom = Recipe::custom(&options.name, &from, options.packages.iter().map(String::as_str))?;
            custom.with_npm(options.npm.iter().map(String::as_str))?
        }
    };
    recipe.memory_mib = options.memory.unwrap_or(recipe.memory_mib);
    recipe.vcpus = options.cpus.unwrap_or(recipe.vcpus);
    recipe.disk_mib = options.disk.unwrap_or(recipe.disk_mib);
    recipe.check()?;
    Ok(recipe)
}

async fn ls(common: &Common, json: bool) -> anyhow::Result<()> {
    let templates = open_engine(common).await?.list_templates(DEFAULT_WORKSPACE)?;
    let views: Vec<_> = templates.into_iter().map(|template| template_view(DEFAULT_WORKSPACE, template)).collect();
    list::print(serde_json::to_value(views)?, json)
}

async fn inspect(common: &Common, name: &str, verify: bool) -> anyhow::Result<()> {
    let image = open_engine(common).await?.machines().inspect_template(DEFAULT_WORKSPACE, name)?;
    if verify {
        image.verify_full()?;
    }
    show::json(&image.manifest)
}
