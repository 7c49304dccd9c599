//! Tables and progress for people.

use std::io::IsTerminal;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use sandling_engine::Step;

/// A table without lines, as people know it from other tools.
pub fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header.iter().map(|title| title.to_uppercase()));
    // A serial console does not know its width and says 0; fitted to that, every letter would have a line of its own.
    if table.width() == Some(0) {
        table.set_content_arrangement(ContentArrangement::Disabled);
    }
    table
}

/// Progress of a long step: a moving line on a terminal, plain lines elsewhere.
pub struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    pub fn new() -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: None };
        }
        let bar = ProgressBar::new_spinner();
        if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed:>4} {wide_msg}") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(120));
        Self { bar: Some(bar) }
    }

    pub fn step(&self, step: &Step) {
        let text = match step.progress {
            Some((done, total)) => format!("{} ({done} of {total})", step.text),
            None => step.text.clone(),
        };
        match &self.bar {
            Some(bar) => bar.set_message(text),
            None => eprintln!("  {text}"),
        }
    }

    pub fn done(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// `1.5 GiB`
pub fn bytes(count: u64) -> String {
    indicatif::BinaryBytes(count).to_string()
}
