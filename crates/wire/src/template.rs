//! Templates and builds of them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Serialize, ToSchema)]
pub struct TemplateView {
    pub name: String,
    pub label: String,
    pub description: String,
    pub category: &'static str,
    pub cpu: u32,
    pub memory_mb: u32,
    pub disk_mb: u32,
    pub size_bytes: u64,
    /// Every workspace has it.
    pub is_global: bool,
    pub workspace: Option<String>,
    /// The Debian packages it is made of.
    pub tools: Vec<String>,
    /// It can be used now; otherwise it must be built first.
    pub ready: bool,
    pub meta: BTreeMap<String, String>,
}

/// A template to build: another one with more packages, or what a Dockerfile says.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildRequest {
    pub name: String,
    /// A built-in template to start from; `base` if absent.
    pub from: Option<String>,
    /// Debian packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// Packages from npm, `name` or `name@version`; their own install scripts are not run.
    #[serde(default)]
    pub npm: Vec<String>,
    /// A Dockerfile of one stage, whose base is a template. Files for `COPY` are parts of a form.
    pub dockerfile: Option<String>,
    /// A template as it is, under another name; what a Dockerfile's `FROM` may have.
    pub image_ref: Option<String>,
    /// A template of this name that was built from a Dockerfile is replaced.
    pub replace: Option<bool>,
    pub cpu: Option<u32>,
    pub memory_mb: Option<u32>,
    pub disk_mb: Option<u32>,
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BuildView {
    pub id: String,
    pub name: String,
    /// `queued`, `running`, `done` or `failed`.
    pub status: &'static str,
    pub error: Option<String>,
    pub started_at: String,
    pub ended_at: Option<String>,
    pub bytes: Option<u64>,
}
