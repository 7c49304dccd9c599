//! `sandling template export` and `import`.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, bail};
use sandling_engine::{ExportedTemplate, ImportedTemplate};
use sandling_image::Existing;

use crate::commands::open_engine;
use crate::options::Common;
use crate::save::temporary_beside;
use crate::show;

pub async fn export(common: &Common, name: &str, file: &Path) -> anyhow::Result<()> {
    let started = Instant::now();
    let unwritable = || format!("cannot write {}", file.display());
    let temporary = match file == Path::new("-") {
        true => None,
        false => Some(temporary_beside(file).with_context(unwritable)?),
    };
    let out: Box<dyn Write + Send> = match &temporary {
        Some(temporary) => Box::new(temporary.reopen().with_context(unwritable)?),
        None => Box::new(io::stdout()),
    };
    let engine = open_engine(common).await?;
    let progress = Arc::new(show::Progress::new());
    let steps = progress.clone();
    let exported = engine.export_template(name, out, move |step| steps.step(&step)).await;
    progress.done();
    engine.close().await;
    let ExportedTemplate { archive, has_bake } = exported?;
    let is_stdout = temporary.is_none();
    if let Some(temporary) = temporary {
        temporary.persist(file).with_context(unwritable)?.sync_all().with_context(unwritable)?;
    }
    let bake = if has_bake { "with its bake, for hosts like this one" } else { "without a bake" };
    let report = format!(
        "exported {name} {bake}: {}, {:.0} s\nsha256 {}",
        show::bytes(archive.bytes),
        started.elapsed().as_secs_f64(),
        archive.sha256
    );
    // The archive itself goes to stdout.
    if is_stdout {
        eprintln!("{report}");
        return Ok(());
    }
    show::line(report)
}

pub async fn import(common: &Common, file: &Path, name: Option<&str>, existing: Existing) -> anyhow::Result<()> {
    let started = Instant::now();
    let from = open(file)?;
    let engine = open_engine(common).await?;
    let progress = Arc::new(show::Progress::new());
    let steps = progress.clone();
    let imported = engine.import_template(name, existing, from, move |step| steps.step(&step)).await;
    progress.done();
    engine.close().await;
    let ImportedTemplate { template, sha256, is_baked } = imported?;
    show::line(format_args!(
        "imported {}: {} on disk, {:.0} s\nsha256 {sha256}",
        template.name,
        show::bytes(template.size_bytes),
        started.elapsed().as_secs_f64()
    ))?;
    if !is_baked {
        let note = "the archive has no bake that fits this host, so the first sandbox bakes the template, which takes a minute \
                    or two without KVM";
        show::line(note)?;
    }
    Ok(())
}

fn open(file: &Path) -> anyhow::Result<Box<dyn Read + Send>> {
    if file == Path::new("-") {
        return Ok(Box::new(io::stdin()));
    }
    let opened = File::open(file).with_context(|| format!("cannot read {}", file.display()))?;
    if opened.metadata().is_ok_and(|metadata| metadata.is_dir()) {
        bail!("{} is a directory, not an exported template", file.display());
    }
    Ok(Box::new(opened))
}
