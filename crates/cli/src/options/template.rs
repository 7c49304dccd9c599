//! `sandling template`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct Template {
    #[command(subcommand)]
    pub command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Build a template and bake its warm snapshot; does nothing if its inputs have not changed
    #[command(after_help = "Examples:\n  sandling template build base\n  \
                            sandling template build media --packages ffmpeg,imagemagick --memory 1024\n  \
                            sandling template build web --npm typescript@5,prettier")]
    Build(Build),
    /// List templates
    Ls {
        #[arg(long)]
        json: bool,
    },
    /// Show what a template is made of, as JSON
    Inspect {
        name: String,
        /// Read every byte and compare it with its digest; only on the machine that has the files
        #[arg(long)]
        verify: bool,
    },
    /// Remove a template and what only it used
    Rm { name: String },
}

#[derive(Debug, Args)]
pub struct Build {
    /// `base`, `code-interpreter`, `agent`, or a name of your own
    pub name: String,
    /// Debian packages, on top of `--from`
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub packages: Vec<String>,
    /// Packages from npm, each with or without @VERSION; their own install scripts are not run
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub npm: Vec<String>,
    /// The built-in template that yours adds to
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub from: String,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Virtual CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Disk in MiB
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// A kernel of your own instead of Debian's cloud kernel
    #[arg(long, value_name = "VMLINUZ")]
    pub kernel: Option<PathBuf>,
    /// That kernel's modules, a `lib/modules/RELEASE` directory, unless all it needs is built in
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Take the newest kernel, even if nothing else changed
    #[arg(long)]
    pub upgrade: bool,
    /// Build it even if nothing changed
    #[arg(long)]
    pub force: bool,
}
