//! The code to run.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail};
use sandling_engine::scan::{self, Finding};
use sandling_protocol::Language;

use crate::options::Run;

/// Maximum size of the code; larger input is probably data.
const MAX_CODE: u64 = 1024 * 1024;

pub struct Code {
    pub text: String,
    pub language: Language,
    pub template: String,
    pub advice: Vec<Finding>,
}

impl Code {
    pub fn read(options: &Run) -> anyhow::Result<Self> {
        let (text, language) = (read(options)?, language(options));
        let advice = if options.scan { scan::scan(language, &text) } else { Vec::new() };
        let template = options.template.clone().unwrap_or_else(|| default_template(language).to_owned());
        Ok(Self { text, language, template, advice })
    }
}

/// The smallest template that has the language.
fn default_template(language: Language) -> &'static str {
    match language {
        Language::Node => "code-interpreter",
        Language::Python | Language::Bash => "base",
    }
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

fn language(options: &Run) -> Language {
    if let Some(language) = options.language {
        return language;
    }
    match options.file.as_deref().and_then(Path::extension).and_then(|extension| extension.to_str()) {
        Some("js" | "mjs" | "cjs") => Language::Node,
        Some("sh" | "bash") => Language::Bash,
        _ => Language::Python,
    }
}
