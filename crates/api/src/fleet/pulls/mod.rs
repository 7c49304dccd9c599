//! Copies of other nodes' templates: somebody asks for one (`pull.rs`), or the server copies what is in use elsewhere
//! (`background.rs`).
//!
//! A template belongs to the node that built it. The background copies only from this node, and what this node does not have
//! any more is removed from the copies. So a template that somebody has deleted does not come back from one (`copies.rs`).

mod background;
mod copies;
mod offers;
mod pull;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use sandling_engine::TemplateSummary;
use sandling_wire::Home;

use copies::Copies;
pub(super) use offers::{LIST, OFFER, answer_list, answer_offer, answer_send};
pub(crate) use pull::Replace;

/// What `serve --pull-templates` copies in the background.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullTemplates {
    /// What was used recently.
    Used,
    /// Built-in templates and those of the default workspace, by their names.
    Named(BTreeSet<String>),
}

/// This node's part in copies of templates.
pub(super) struct Pulls {
    copies: Copies,
    background: Option<PullTemplates>,
    /// One at a time.
    turn: tokio::sync::Mutex<()>,
}

impl Pulls {
    pub(super) fn open(home: &Home, background: Option<PullTemplates>) -> Self {
        Self { copies: Copies::open(home.fleet().join("copies.json")), background, turn: tokio::sync::Mutex::default() }
    }

    /// Whether a template of this node is a copy of another node's. If the list of copies cannot be read, none is.
    pub(super) fn is_copy(&self, workspace: &str, template: &TemplateSummary) -> bool {
        let copy = self.copies.find(workspace, &template.name).ok().flatten();
        copy.is_some_and(|copy| template.content().is_none_or(|content| content == copy.content))
    }
}
