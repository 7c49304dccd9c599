//! Copies of templates of other homes.
//!
//! A template of an image travels as an export of it, which an import checks. One that was made from steps or a snapshot
//! travels like a snapshot that moves, and is named here when it has arrived. In both cases the copy is the template that was
//! offered, or nothing is stored. A home takes no template whose sandboxes could reach something else there than where it was
//! built.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;

use jiff::Timestamp;
use sandling_image::{ArchiveError, Existing, ExportOptions, Image, LoadError, TemplateName};
use serde::{Deserialize, Serialize};

use super::instance::Engine;
use super::moving::{Consignment, MoveError, MovePlan};
use super::templates::check_tagged;
use crate::machine::{OnStep, TemplateArchiveError, TemplateError, TemplateSummary, WantedImage, own_name};
use crate::model::{NetworkSettings, SnapshotId};
use crate::network::{NetworkError, Reach};
use crate::snapshot::untagged;
use crate::store::StoreError;

/// What another home must know before it takes a copy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TemplateOffer {
    /// An alias is replaced with what it stands for.
    pub name: String,
    /// Two templates with the same content are the same.
    pub content: String,
    pub built_in: bool,
    pub created_at: Option<Timestamp>,
    /// What it takes on a disk, without bakes.
    pub bytes: u64,
    /// What its sandboxes may reach by default, by workspace.
    reach: BTreeMap<String, Reach>,
    /// For a template that was made from steps or a snapshot.
    snapshot: Option<OfferedSnapshot>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct OfferedSnapshot {
    plan: MovePlan,
    description: String,
}

#[derive(Debug, thiserror::Error)]
pub enum TemplateCopyError {
    #[error("the template has changed since it was offered; pull it again")]
    Changed,
    #[error("the other node sent another template than it had offered; nothing was stored")]
    Foreign,
    #[error(
        "the network defaults of workspace {workspace} for template `{name}` differ on the two nodes, so its sandboxes could \
         reach something else here; set the same defaults, and start the servers with the same network options"
    )]
    OtherReach { workspace: String, name: String },
    #[error("template `{0}` exists already and was made in another way; remove it first")]
    OtherKind(String),
    #[error(transparent)]
    Template(#[from] TemplateError),
    #[error(transparent)]
    Archive(#[from] TemplateArchiveError),
    #[error(transparent)]
    Move(#[from] MoveError),
    #[error(transparent)]
    Network(#[from] NetworkError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A template that is ready to be sent.
pub struct TemplateStream(Content);

enum Content {
    Image(Box<Image>, ExportOptions),
    Snapshot(MovePlan, Vec<usize>),
}

impl TemplateSummary {
    /// Two templates with the same content are the same. `None` if there is no usable one.
    pub fn content(&self) -> Option<&str> {
        self.digest.as_deref().or(self.image.as_deref()).filter(|_| self.is_ready())
    }
}

impl Engine {
    /// What this home has under a name. `None` if there is no template that can be used. All workspaces share the built-in
    /// templates. Blocks.
    pub fn offer_template(
        &self,
        workspace: &str,
        name: &str,
        all_workspaces: &[String],
    ) -> Result<Option<TemplateOffer>, TemplateCopyError> {
        let name = untagged(name);
        let own = [workspace.to_owned()];
        if let Some(info) = self.parts.snapshots.of_template(workspace, name)? {
            let described = self.parts.snapshots.template_named(workspace, name)?;
            let plan = self.plan_snapshot_copy(&info.id)?;
            return Ok(Some(TemplateOffer {
                name: name.to_owned(),
                content: info.digest.clone(),
                built_in: false,
                created_at: Some(info.created_at),
                bytes: plan.cargo.all_bytes(),
                reach: self.reaches(&own, name)?,
                snapshot: Some(OfferedSnapshot {
                    plan,
                    description: described.map(|template| template.description).unwrap_or_default(),
                }),
            }));
        }
        let built_in = self.built_in(workspace, name)?;
        let name = built_in.as_ref().map_or(name, |built_in| built_in.recipe.name.as_str());
        let image = match self.parts.machines.inspect_template(workspace, name) {
            Err(TemplateError::Load(LoadError::NotBuilt { .. }) | TemplateError::Name(_)) => return Ok(None),
            found => found?,
        };
        let summary = crate::machine::summary(&image.manifest.recipe, Some(&image));
        Ok(Some(TemplateOffer {
            name: name.to_owned(),
            content: image.id.to_string(),
            built_in: built_in.is_some(),
            created_at: summary.created_at,
            bytes: summary.size_bytes,
            reach: self.reaches(if built_in.is_some() { all_workspaces } else { &own }, name)?,
            snapshot: None,
        }))
    }

    /// What sandboxes of a template may reach unless a request says otherwise.
    fn reaches(&self, workspaces: &[String], name: &str) -> Result<BTreeMap<String, Reach>, NetworkError> {
        let usual = NetworkSettings::default();
        let of = |workspace: &String| Ok((workspace.clone(), self.parts.networks.reach(workspace, name, &usual)?));
        workspaces.iter().map(of).collect()
    }

    /// Which files this home lacks of a template that another one offers. The error says why it cannot take it. Blocks.
    pub fn lacks_of_template(&self, offer: &TemplateOffer) -> Result<Vec<usize>, TemplateCopyError> {
        let workspaces: Vec<_> = offer.reach.keys().cloned().collect();
        let here = self.reaches(&workspaces, &offer.name)?;
        if let Some((workspace, _)) = offer.reach.iter().find(|(workspace, reach)| here.get(*workspace) != Some(*reach))
        {
            return Err(TemplateCopyError::OtherReach { workspace: workspace.clone(), name: offer.name.clone() });
        }
        match &offer.snapshot {
            Some(offered) => Ok(self.can_take(&offered.plan)?),
            None => Ok(Vec::new()),
        }
    }

    /// Prepares to send what was offered.
    pub async fn open_template(
        &self,
        offer: TemplateOffer,
        workspace: &str,
        lacks: Vec<usize>,
    ) -> Result<TemplateStream, TemplateCopyError> {
        if let Some(offered) = offer.snapshot {
            return Ok(TemplateStream(Content::Snapshot(offered.plan, lacks)));
        }
        let image = self.parts.machines.inspect_template(workspace, &offer.name)?;
        if image.id.as_str() != offer.content {
            return Err(TemplateCopyError::Changed);
        }
        let name = stored_name(workspace, &offer)?;
        let options = self.parts.machines.export_options(name, &image).await;
        Ok(TemplateStream(Content::Image(Box::new(image), options)))
    }

    /// Writes a template for another home. Blocks.
    pub fn send_template(&self, stream: TemplateStream, out: impl Write) -> Result<(), TemplateCopyError> {
        match stream.0 {
            Content::Image(image, options) => {
                image.export(options, out, &mut |_| ()).map_err(TemplateArchiveError::from)?;
            }
            Content::Snapshot(plan, lacks) => {
                let [token, from] = [String::new(), String::new()];
                let with = Consignment { token, wakes: false, from, more: serde_json::Value::Null };
                self.pack(&plan, lacks, with, out)?;
            }
        }
        Ok(())
    }

    /// Stores a template that another home sends: all of what it had offered, or nothing. A template of the name is replaced.
    pub async fn take_template(
        self: &Arc<Self>,
        workspace: &str,
        offer: TemplateOffer,
        from: impl Read + Send + 'static,
        on_step: OnStep,
    ) -> Result<(), TemplateCopyError> {
        let is_snapshot = self.parts.snapshots.of_template(workspace, &offer.name)?.is_some();
        let here = self.parts.machines.inspect_template(workspace, &offer.name);
        let is_image = !matches!(here, Err(TemplateError::Load(LoadError::NotBuilt { .. }) | TemplateError::Name(_)));
        if (is_snapshot && offer.snapshot.is_none()) || (is_image && offer.snapshot.is_some()) {
            return Err(TemplateCopyError::OtherKind(offer.name));
        }
        let Some(offered) = offer.snapshot else {
            let image = offer.content.parse().map_err(|_| TemplateCopyError::Foreign)?;
            let wanted = WantedImage { name: stored_name(workspace, &offer)?, image };
            let imported = self.parts.machines.import_wanted(wanted, Existing::Replace, from, on_step.clone()).await;
            return match imported {
                Err(TemplateArchiveError::Archive(ArchiveError::OtherImage { .. })) => Err(TemplateCopyError::Foreign),
                imported => Ok(imported.map(drop)?),
            };
        };
        check_tagged(workspace, &offer.name).map_err(TemplateError::from)?;
        let (engine, workspace, name, content) = (self.clone(), workspace.to_owned(), offer.name, offer.content);
        let storing =
            tokio::task::spawn_blocking(move || engine.store_template(&workspace, &name, &content, &offered, from));
        storing.await.map_err(|_| TemplateError::CutOff)?
    }

    fn store_template(
        &self,
        workspace: &str,
        name: &str,
        content: &str,
        offered: &OfferedSnapshot,
        from: impl Read,
    ) -> Result<(), TemplateCopyError> {
        let text = |plan: &MovePlan| serde_json::to_value(plan).ok();
        let is_whole = |plan: &MovePlan| {
            plan.cargo.only().is_some_and(|info| {
                info.workspace == workspace && info.digest == content && info.computed_digest() == content
            })
        };
        let received = self.receive(from, |plan| is_whole(plan) && text(plan) == text(&offered.plan));
        let (manifest, _no_sweep) = match received {
            Err(MoveError::Foreign) => return Err(TemplateCopyError::Foreign),
            received => received?,
        };
        let id: Option<&SnapshotId> = manifest.plan.cargo.only().map(|info| &info.id);
        let (info, _) =
            id.and_then(|id| self.parts.store.snapshot(id).transpose()).ok_or(TemplateCopyError::Foreign)??;
        let snapshots = &self.parts.snapshots;
        let description = &offered.description;
        if !snapshots.change_template(workspace, name, &info, description)? {
            snapshots.add_template(workspace, &info, name, description)?;
        }
        Ok(())
    }

    /// Bakes a template of an image on this host, unless it is baked.
    pub async fn bake_template(&self, workspace: &str, name: &str, on_step: OnStep) -> Result<(), TemplateError> {
        match self.parts.snapshots.of_template(workspace, name)? {
            Some(_) => Ok(()),
            None => self.parts.machines.bake_template(workspace, name, on_step).await,
        }
    }
}

/// The workspace that asks owns the copy, whatever the other home says.
fn stored_name(workspace: &str, offer: &TemplateOffer) -> Result<TemplateName, TemplateError> {
    match sandling_image::resolve(&offer.name) {
        Ok(built_in) if offer.built_in => Ok(built_in.recipe.name),
        _ => Ok(own_name(workspace, &offer.name)?),
    }
}
