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
    /// What is installed in a built-in template, with versions: Debian's packages by name, others as `npm:NAME` and
    /// `pip:NAME`. Absent in lists.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub versions: BTreeMap<String, String>,
    /// Whether it can be used now; otherwise it must be built first.
    pub ready: bool,
    /// In a list of a fleet: the nodes that have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// For a template from an OCI image, also its `oci.reference`, `oci.digest`, and what its configuration sets:
    /// `oci.entrypoint` and `oci.cmd` as JSON lists, `oci.user`, `oci.working_dir`, `oci.exposed_ports`, `oci.stop_signal`
    /// and `oci.labels`.
    pub meta: BTreeMap<String, String>,
}

/// Which copy of a template a node of a fleet is to get.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PullTemplate {
    /// The node to copy it from; if absent, the one with the newest.
    pub from: Option<String>,
    /// Whether to replace another template of this name; no if absent.
    pub replace: Option<bool>,
}

/// A template to build: a built-in one with more packages, or a Dockerfile. Both run in a machine.
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
    /// Packages from PyPI, optionally with versions, like `six==1.16.0`.
    #[serde(default)]
    pub pip: Vec<String>,
    /// The text of a requirements file with packages from PyPI. Of pip's options, it may have `--hash`.
    pub requirements: Option<String>,
    /// A Dockerfile, whose bases are templates or OCI images. Files for `COPY` are parts of a multipart form, or an upload.
    pub dockerfile: Option<String>,
    /// The hash under which an archive of the Dockerfile's directory was uploaded.
    pub context: Option<String>,
    /// Values for the Dockerfile's `ARG`s.
    #[serde(default)]
    pub build_args: BTreeMap<String, String>,
    /// The stage of the Dockerfile to build; the last one if absent.
    pub target: Option<String>,
    /// Values for `RUN --mount=type=secret`, by id, in Base64.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// Whether to run every step, although an earlier build has stored its result.
    pub no_cache: Option<bool>,
    /// Whether what `ENTRYPOINT` and `CMD` start runs in the template's sandboxes; yes if absent.
    pub start: Option<bool>,
    /// Lines for the shell that run before the template is saved, so that they are fast in its sandboxes.
    #[serde(default)]
    #[schema(max_items = 50)]
    pub warm: Vec<String>,
    /// Whether the machine of a failed build stays for an hour as a sandbox.
    pub keep_failed: Option<bool>,
    /// A template to use under another name; anything that `FROM` in a Dockerfile may name.
    pub image_ref: Option<String>,
    /// Whether to replace a template of this name that was built; for packages yes if absent, otherwise no.
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
    /// The sandbox that a failed build has left for a look at it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// In a list of a fleet: the node that has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

/// What a template stood for at some time.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct TemplateVersion {
    /// `NAME@DIGEST` names this version.
    pub digest: String,
    pub created_at: String,
    pub size_bytes: u64,
    /// Whether the name stands for this version now.
    pub current: bool,
}

/// What was removed because nothing needs it.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
pub struct FreedView {
    /// Results of steps that were cached for later builds.
    pub steps: u64,
    /// Layers of images.
    #[serde(default)]
    pub layers: u64,
    /// Templates of images that were not used for long.
    #[serde(default)]
    pub templates: u64,
    /// Pre-warmed snapshots of templates in sizes that were not used for long.
    #[serde(default)]
    pub bakes: u64,
    pub bytes: u64,
}
