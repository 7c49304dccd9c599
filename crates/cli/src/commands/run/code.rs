//! The code to run.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use sandling_engine::scan::{self, Finding};
use sandling_protocol::Language;

use super::files::{self, Files};
use super::launch::{FileKind, Launch};
use crate::options::Run;

/// Maximum size of the code; larger input is probably data.
const MAX_CODE: u64 = 1024 * 1024;

pub struct Code {
    pub template: String,
    /// The image in a registry that the sandbox comes from, instead of the template.
    pub image: Option<String>,
    pub advice: Vec<Finding>,
    pub launch: Launch,
    pub files: Option<Files>,
}

impl Code {
    pub fn read(options: &Run) -> anyhow::Result<Self> {
        let text = read(options)?;
        let (language, launch, files) = match options.file.as_deref().filter(|path| *path != Path::new("-")) {
            Some(script) => in_place(options, script, &text)?,
            None => {
                let language = options.language.unwrap_or(Language::Python);
                (language, Launch::Code { language, text: text.clone() }, Files::of(options, None)?)
            }
        };
        let advice = if options.scan { scan::scan(language, &text) } else { Vec::new() };
        Ok(Self { template: options.template.clone(), image: None, advice, launch, files })
    }

    /// The working directory, if the code has files.
    pub fn cwd(&self) -> Option<String> {
        self.files.as_ref().map(|files| files.cwd.display().to_string())
    }
}

/// A script runs under its own path, with its siblings.
fn in_place(options: &Run, script: &Path, text: &str) -> anyhow::Result<(Language, Launch, Option<Files>)> {
    let kind = FileKind::of(script, text, options.language)?;
    let path = files::absolute(script)?;
    let mut files = Files::of(options, Some(script))?;
    if let (FileKind::Executable, Some(files)) = (kind, &mut files) {
        files.make_executable(&path);
    }
    let launch = kind.launch(&path.display().to_string(), &script.display().to_string(), &options.args);
    Ok((kind.language(), launch, files))
}

/// Whether the code reads our stdin. With `-`, stdin is the code itself.
pub fn reads_stdin(options: &Run) -> bool {
    options.file.as_deref() != Some(Path::new("-"))
}

fn read(options: &Run) -> anyhow::Result<String> {
    let mut code = Vec::new();
    match (&options.code, options.file.as_deref()) {
        (Some(text), _) => code.extend_from_slice(text.as_bytes()),
        (None, Some(path)) if path == Path::new("-") => {
            std::io::stdin().take(MAX_CODE + 1).read_to_end(&mut code).context("cannot read stdin")?;
        }
        (None, Some(path)) => {
            let unreadable = || format!("cannot read {}", path.display());
            let file = std::fs::File::open(path).with_context(unreadable)?;
            file.take(MAX_CODE + 1).read_to_end(&mut code).with_context(unreadable)?;
        }
        (None, None) => bail!("no code given; use -c CODE, a file, or - for stdin"),
    }
    if code.len() as u64 > MAX_CODE {
        bail!("the code is longer than {MAX_CODE} bytes; put data in separate files");
    }
    String::from_utf8(code).ok().context("the code is not UTF-8 text; put binary data in separate files")
}
