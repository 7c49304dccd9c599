//! Templates and their builds.

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
    /// Whether every workspace has it.
    pub is_global: bool,
    pub workspace: Option<String>,
    /// Its Debian packages.
    pub tools: Vec<String>,
    /// Whether it can be used now; otherwise it must be built first.
    pub ready: bool,
    pub meta: BTreeMap<String, String>,
}

/// A template to build: another template with more packages, or a Dockerfile.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BuildRequest {
    pub name: String,
    /// A built-in template to start from; `base` if absent.
    pub from: Option<String>,
    /// Debian packages.
    #[serde(default)]
    pub packages: Vec<String>,
    /// npm packages, `name` or `name@version`. Their install scripts do not run.
    #[serde(default)]
    pub npm: Vec<String>,
    /// A Dockerfile with one stage, whose base is a template. Files for `COPY` are parts of a multipart form.
    pub dockerfile: Option<String>,
    /// A template to use under another name; anything that `FROM` in a Dockerfile may name.
    pub image_ref: Option<String>,
    /// Whether to replace a template of this name that was built from a Dockerfile.
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
