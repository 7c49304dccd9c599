//! `sandling template`: build, list, inspect, remove.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use sandling_image::{BuildOptions, OwnKernel, Recipe};

use sandling_engine::{DEFAULT_WORKSPACE, TemplateSummary};

use super::open_engine;
use crate::options::{Build, Common, Template, TemplateCommand};
use crate::show;

pub async fn template(common: &Common, options: &Template) -> anyhow::Result<ExitCode> {
    match &options.command {
        TemplateCommand::Build(options) => build(common, options).await?,
        TemplateCommand::Ls { json } => list(common, *json).await?,
        TemplateCommand::Inspect { name, verify } => inspect(common, name, *verify).await?,
        TemplateCommand::Rm { name } => open_engine(common).await?.remove_template(DEFAULT_WORKSPACE, name).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn build(common: &Common, options: &Build) -> anyhow::Result<()> {
    let started = Instant::now();
    let recipe = recipe(options)?;
    let engine = open_engine(common).await?;
    let progress = Arc::new(show::Progress::new());
    let steps = progress.clone();
    let kernel = options.kernel.clone().map(|vmlinuz| OwnKernel { vmlinuz, modules: options.modules.clone() });
    let build = BuildOptions { force: options.force, upgrade: options.upgrade, kernel };
    let built = engine.build_template(recipe, build, move |step| steps.step(&step)).await;
    progress.done();
    engine.close().await;
    let built = built?;
    println!(
        "{} is ready: {} on disk, {} MiB of memory, {:.0} s",
        built.name,
        show::bytes(built.size_bytes),
        built.memory_mib,
        started.elapsed().as_secs_f64()
    );
    Ok(())
}

fn recipe(options: &Build) -> anyhow::Result<Recipe> {
    let packages = || options.packages.iter().map(String::as_str);
    let mut recipe = match sandling_image::resolve(&options.name) {
        Ok(built_in) if options.packages.is_empty() => built_in.recipe,
        _ => Recipe::custom(&options.name, &sandling_image::resolve(&options.from)?.recipe, packages())?,
    };
    recipe.memory_mib = options.memory.unwrap_or(recipe.memory_mib);
    recipe.vcpus = options.cpus.unwrap_or(recipe.vcpus);
    recipe.disk_mib = options.disk.unwrap_or(recipe.disk_mib);
    recipe.check()?;
    Ok(recipe)
}

async fn list(common: &Common, json: bool) -> anyhow::Result<()> {
    let templates = open_engine(common).await?.list_templates(DEFAULT_WORKSPACE)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&templates)?);
        return Ok(());
    }
    let mut table = show::table(&["name", "size", "cpus", "memory", "disk", "description"]);
    for template in templates {
        let size = size(&template);
        table.add_row([
            template.name,
            size,
            template.vcpus.to_string(),
            format!("{} MiB", template.memory_mib),
            format!("{} MiB", template.disk_mib),
            template.damage.unwrap_or(template.description),
        ]);
    }
    println!("{table}");
    Ok(())
}

fn size(template: &TemplateSummary) -> String {
    if template.image.is_some() { show::bytes(template.size_bytes) } else { "not built".to_owned() }
}

async fn inspect(common: &Common, name: &str, verify: bool) -> anyhow::Result<()> {
    let image = open_engine(common).await?.inspect_template(DEFAULT_WORKSPACE, name)?;
    if verify {
        image.verify_full()?;
    }
    println!("{}", serde_json::to_string_pretty(&image.manifest)?);
    Ok(())
}
