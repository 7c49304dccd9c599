//! Whether a build can give its template a name.

use sandling_engine::{TemplateError, check_tagged};

use super::start::Builds;
use crate::workspaces::WorkspaceName;

impl Builds {
    /// Refuses a name that the template could not have in the end. Only a template that stands for a snapshot is replaced.
    pub fn check_name(&self, workspace: &WorkspaceName, name: &str, replace: bool) -> Result<(), TemplateError> {
        let workspace = workspace.as_str();
        if self.engine.built_in(workspace, name)?.is_some() {
            return Err(TemplateError::Exists(name.to_owned()));
        }
        check_tagged(workspace, name)?;
        let replaces = replace && self.engine.snapshots().of_template(workspace, name)?.is_some();
        let taken = self.engine.list_templates(workspace)?.iter().any(|template| template.name == name);
        if taken && !replaces { Err(TemplateError::Exists(name.to_owned())) } else { Ok(()) }
    }
}
