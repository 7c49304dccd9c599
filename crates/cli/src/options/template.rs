//! Options of `sandling template`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Build a template and its pre-warmed snapshot; does nothing if its inputs have not changed
    #[command(after_help = "Examples:\n  sandling template build base\n  \
                            sandling template build media --packages ffmpeg,imagemagick --memory 1024\n  \
                            sandling template build web --npm typescript@5,prettier")]
    Build(Build),
    /// List templates
    Ls {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Show a template's contents as JSON
    Inspect {
        name: String,
        /// Verify the checksums of the template's files. Works only on the server's own machine
        #[arg(long)]
        verify: bool,
    },
    /// Remove a template and the files that no other template uses
    Rm { name: String },
}

#[derive(Debug, Args)]
pub struct Build {
    /// A built-in template (base, code-interpreter, agent) or a name of your own
    pub name: String,
    /// Debian packages to add to --from
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub packages: Vec<String>,
    /// npm packages to add, optionally with @VERSION; their install scripts are not run
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub npm: Vec<String>,
    /// Built-in template to start from
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub from: String,
    /// Memory in MiB
    #[arg(long, value_name = "MIB")]
    pub memory: Option<u32>,
    /// Number of virtual CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Disk in MiB
    #[arg(long, value_name = "MIB")]
    pub disk: Option<u32>,
    /// Use this kernel instead of Debian's cloud kernel
    #[arg(long, value_name = "VMLINUZ")]
    pub kernel: Option<PathBuf>,
    /// Modules of that kernel, a `lib/modules/RELEASE` directory. Not needed if all drivers are built in
    #[arg(long, value_name = "DIR", requires = "kernel")]
    pub modules: Option<PathBuf>,
    /// Use the newest kernel, even if nothing else changed
    #[arg(long)]
    pub upgrade: bool,
    /// Rebuild even if nothing changed
    #[arg(long)]
    pub force: bool,
}
