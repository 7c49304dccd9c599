//! Options of `sandling template`.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use sandling_image::RecipeError;
use sandling_service::{Packages, split_requirements};

use super::images::OperatorImages;
use super::network::{BuildNetwork, OperatorNetwork};

#[derive(Debug, Subcommand)]
pub enum TemplateCommand {
    /// Build a template and its pre-warmed snapshot; does nothing if its inputs have not changed
    #[command(after_help = "Examples:\n  sandling template build base\n  \
                            sandling template build media --packages ffmpeg,imagemagick --memory 1024\n  \
                            sandling template build web --npm typescript@5,prettier\n  \
                            sandling template build data --pip polars,'duckdb>=1,<2' -r requirements.txt\n  \
                            sandling template build app -f Dockerfile .")]
    Build(Box<Build>),
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
    /// Write a template to one file, which other hosts can import
    #[command(after_help = "Examples:\n  sandling template export code-interpreter code-interpreter.tar.zst\n  \
                            sandling template export base - | ssh host sandling template import -")]
    Export {
        name: String,
        /// The file to write; `-` writes to stdout
        file: PathBuf,
    },
    /// Read a template that `sandling template export` wrote. Import only files that you trust like a program
    Import {
        /// The file to read; `-` reads from stdin
        file: PathBuf,
        /// Import the template under this name instead of its own
        #[arg(long)]
        name: Option<String>,
        /// Replace a template that has the name already. Sandboxes of the old one keep running
        #[arg(long)]
        replace: bool,
    },
    /// Copy a template from another node of the fleet to the node that is asked
    #[command(after_help = "Examples:\n  sandling template pull base\n  sandling template pull web --from node-1")]
    Pull {
        name: String,
        /// The node to copy it from [default: the one with the newest]
        #[arg(long, value_name = "NODE")]
        from: Option<String>,
        /// Replace another template that has the name already. Sandboxes of the old one keep running
        #[arg(long)]
        replace: bool,
    },
    /// Remove a template and the files that no other template uses
    Rm { name: String },
    /// List the versions of a template that was built from a Dockerfile
    History {
        name: String,
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
    /// Remove what builds and images have cached, and print how much that freed
    Gc {
        #[arg(long, help = "Print JSON")]
        json: bool,
    },
}

#[derive(Debug, Args)]
pub struct Build {
    /// A built-in template (base, code-interpreter, agent, desktop) or a name of your own
    pub name: String,
    /// The directory for COPY. Its Dockerfile is built unless -f names another
    #[arg(value_name = "DIRECTORY")]
    pub context: Option<PathBuf>,
    /// Build this Dockerfile; `-` reads it from stdin
    #[arg(short = 'f', long, value_name = "DOCKERFILE", conflicts_with_all = ["packages", "npm", "pip", "requirements", "kernel", "upgrade"])]
    pub file: Option<PathBuf>,
    /// Set an ARG of the Dockerfile; without a value, from the environment
    #[arg(long, value_name = "NAME[=VALUE]")]
    pub build_arg: Vec<String>,
    /// Build this stage of the Dockerfile
    #[arg(long, value_name = "STAGE")]
    pub target: Option<String>,
    /// Give RUN --mount=type=secret a file or an environment variable
    #[arg(long, value_name = "id=ID,src=FILE")]
    pub secret: Vec<String>,
    /// Run all steps again
    #[arg(long)]
    pub no_cache: bool,
    /// Start ENTRYPOINT and CMD at the end of the build, so that every sandbox begins with them running
    #[arg(long)]
    pub start: bool,
    /// Run this before the template is saved, so that it is fast in every sandbox; may be repeated
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["kernel", "upgrade"])]
    pub warm: Vec<String>,
    /// If a step fails, open a shell in the machine of the build
    #[arg(long)]
    pub shell_on_failure: bool,
    /// Debian packages to add to --from
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub packages: Vec<String>,
    /// npm packages to add, optionally with @VERSION; their install scripts are not run
    #[arg(long, value_delimiter = ',', value_name = "PACKAGE,…")]
    pub npm: Vec<String>,
    /// Packages from PyPI to add, optionally with versions
    #[arg(long, value_name = "PACKAGE,…")]
    pub pip: Vec<String>,
    /// Add the packages in this requirements file; may be repeated
    #[arg(short, long, value_name = "FILE")]
    pub requirements: Vec<PathBuf>,
    /// Built-in template to start from
    #[arg(long, default_value = "base", value_name = "NAME")]
    pub from: String,
    /// Memory: 512m, 2g, or a number of MiB
    #[arg(long, value_name = "SIZE", value_parser = super::parse::mib)]
    pub memory: Option<u32>,
    /// Number of virtual CPUs
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Disk: 2g, or a number of MiB
    #[arg(long, value_name = "SIZE", value_parser = super::parse::mib)]
    pub disk: Option<u32>,
    /// Use this kernel instead of Debian's cloud kernel. Templates with packages have the kernel of --from
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
    #[command(flatten)]
    pub operator: OperatorNetwork,
    #[command(flatten)]
    pub network: BuildNetwork,
    #[command(flatten)]
    pub images: OperatorImages,
}

impl Build {
    /// Whether the template is made from a Dockerfile.
    pub fn is_dockerfile(&self) -> bool {
        self.file.is_some() || self.context.is_some()
    }

    /// Whether an image is built from Debian's archive on this machine: a built-in template, or one under another name with
    /// another kernel. All other builds run in a machine.
    pub fn is_built_on_host(&self) -> bool {
        sandling_image::resolve(&self.name).is_ok() || self.kernel.is_some() || self.upgrade
    }

    /// Refuses steps for a template that is built without any.
    pub fn check(&self) -> anyhow::Result<()> {
        if !self.is_dockerfile() && !self.has_packages() && self.warm.is_empty() {
            return Ok(());
        }
        if sandling_image::resolve(&self.name).is_ok() {
            return Err(RecipeError::Reserved { name: self.name.clone() }.into());
        }
        let option = if self.kernel.is_some() { "--kernel" } else { "--upgrade" };
        if self.is_built_on_host() {
            bail!(
                "{option} works only for templates without packages: all others have the kernel of the template that they \
                 are made from; build that one with {option} first"
            );
        }
        Ok(())
    }

    fn has_packages(&self) -> bool {
        !(self.packages.is_empty() && self.npm.is_empty() && self.pip.is_empty() && self.requirements.is_empty())
    }

    /// The packages to add, with the texts of the requirements files.
    pub fn added(&self) -> anyhow::Result<Packages> {
        let mut requirements = Vec::new();
        for file in &self.requirements {
            requirements.push(fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?);
        }
        Ok(Packages {
            debian: self.packages.clone(),
            npm: self.npm.clone(),
            pip: self.pip.iter().flat_map(|list| split_requirements(list)).collect(),
            requirements: (!requirements.is_empty()).then(|| requirements.join("\n")),
        })
    }

    pub fn ignores_cache(&self) -> bool {
        self.no_cache || self.force
    }
}
