//! `serve --pull-templates`: copies what other nodes have built and what is in use there, so that more nodes can take a create.
//!
//! It first looks at the copies: one whose template its node does not have any more is removed, and one that somebody has
//! removed here is not copied again. Then it copies one template.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use jiff::{SignedDuration, Timestamp};
use sandling_engine::{TemplateError, TemplateSummary, with_causes};
use sandling_fleet::Member;
use sandling_service::WorkspaceName;

use super::super::member::Fleet;
use super::PullTemplates;
use super::copies::{CopiedTemplate, CopyState};
use super::offers::{ANSWER_WITHIN, LIST, Listed, OFFER};
use super::pull::{Pull, PullError, Report, content_here};
use crate::app::App;
use crate::error::ApiError;

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// A template that was used so recently is copied.
const RECENT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The pause after the first failure. It doubles with each further one.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
const MOST_AGAIN_AFTER: Duration = Duration::from_secs(3600);

/// What a node has built, if it has answered.
type Lists = HashMap<String, Vec<Listed>>;

/// What becomes of a copy's entry.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    AsItIs,
    Forgotten,
    Becomes(CopiedTemplate),
    /// The template is removed here, and then the entry.
    RemovedHere,
}

/// A template that is to be copied.
struct Due {
    from: Member,
    workspace: WorkspaceName,
    listed: Listed,
}

/// Attempts that failed, by workspace, name and content.
#[derive(Default)]
struct Failures(HashMap<(String, String, String), (u32, Instant)>);

impl Failures {
    fn is_due(&self, listed: &Listed) -> bool {
        let failed = key(listed).and_then(|key| self.0.get(&key));
        failed.is_none_or(|(times, at)| at.elapsed() >= pause(*times))
    }

    fn add(&mut self, listed: &Listed) {
        if let Some(key) = key(listed) {
            let (times, at) = self.0.entry(key).or_insert((0, Instant::now()));
            (*times, *at) = (*times + 1, Instant::now());
        }
    }

    fn forget(&mut self, listed: &Listed) {
        if let Some(key) = key(listed) {
            self.0.remove(&key);
        }
    }
}

fn key(listed: &Listed) -> Option<(String, String, String)> {
    Some((listed.workspace.clone(), listed.name.clone(), listed.content.clone()?))
}

fn pause(times: u32) -> Duration {
    AGAIN_AFTER.saturating_mul(1 << times.saturating_sub(1).min(10)).min(MOST_AGAIN_AFTER)
}

impl Fleet {
    /// Copies templates, if the operator wants that. Runs until the future is dropped.
    pub(in crate::fleet) async fn pull_templates(&self, app: &Arc<App>) {
        let Some(wanted) = &self.pulls.background else { return };
        let mut failures = Failures::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            // What was copied is looked at again at once, and then the next one is copied.
            while let Some(due) = self.next_due(app, wanted, &failures).await {
                if !self.copy_due(app, due, &mut failures).await {
                    break;
                }
            }
        }
    }

    /// What is copied next, after a look at the copies.
    async fn next_due(&self, app: &Arc<App>, wanted: &PullTemplates, failures: &Failures) -> Option<Due> {
        if self.membership.writer().is_none() || self.membership.is_draining() || app.engine.is_closing() {
            return None;
        }
        // Somebody pulls a template, which comes first.
        let _turn = self.pulls.turn.try_lock().ok()?;
        let found = self.look(app, wanted, failures).await;
        found.unwrap_or_else(|error| {
            tracing::warn!(error = with_causes(&error), "templates of other nodes cannot be copied now");
            None
        })
    }

    async fn look(
        &self,
        app: &Arc<App>,
        wanted: &PullTemplates,
        failures: &Failures,
    ) -> Result<Option<Due>, PullError> {
        let (members, lists) = self.lists(app).await;
        for copy in self.pulls.copies.all()? {
            let here = content_here(app, &copy.workspace, &copy.name)?;
            self.carry_out(app, &copy, fate(&copy, here.as_deref(), &lists)).await?;
        }
        let copies = self.pulls.copies.all()?;
        for (node, listed) in due(wanted, &copies, &lists, Timestamp::now()) {
            let Some(workspace) = WorkspaceName::parse(&listed.workspace) else { continue };
            let Some(from) = members.iter().find(|member| *member.name == *node) else { continue };
            let is_known = app.service.workspaces.find(&workspace).is_ok();
            let fits = is_known && from.record.hardware == self.hardware && failures.is_due(&listed);
            let replaces = |copy: &CopiedTemplate| {
                copy.is_of(&listed.workspace, &listed.name) && copy.from == node && copy.state == CopyState::Follows
            };
            // A template of this name that was made here stays what it is.
            if !fits || (self.has_name(app, &listed)? && !copies.iter().any(replaces)) {
                continue;
            }
            if app.engine.check_space(2 * listed.bytes.div_ceil(1 << 20)).is_err() {
                tracing::debug!(template = listed.name, "disk space is too short to copy a template");
                continue;
            }
            return Ok(Some(Due { from: from.clone(), workspace, listed }));
        }
        Ok(None)
    }

    /// Returns whether it was copied.
    async fn copy_due(&self, app: &Arc<App>, due: Due, failures: &mut Failures) -> bool {
        let _turn = self.pulls.turn.lock().await;
        match self.copy_listed(app, &due).await {
            Ok(()) => {
                failures.forget(&due.listed);
                true
            }
            Err(error) => {
                failures.add(&due.listed);
                // It logs why.
                let _ = error.explain(&due.from.name, &due.listed.name);
                false
            }
        }
    }

    /// The other nodes, and what those have built that have answered.
    async fn lists(&self, app: &App) -> (Vec<Member>, Lists) {
        let members = self.others();
        let asks = members.iter().map(|member| async move {
            let answer = tokio::time::timeout(ANSWER_WITHIN, self.ask_for::<Vec<Listed>>(app, member, LIST)).await;
            Some((member.name.to_string(), answer.ok()?.ok()??))
        });
        let lists = join_all(asks).await.into_iter().flatten().collect();
        (members, lists)
    }

    async fn carry_out(&self, app: &App, copy: &CopiedTemplate, fate: Fate) -> Result<(), PullError> {
        let copies = &self.pulls.copies;
        match fate {
            Fate::AsItIs => {}
            Fate::Forgotten => copies.forget(&copy.workspace, &copy.name)?,
            Fate::Becomes(copy) => copies.put(copy)?,
            Fate::RemovedHere => match app.engine.remove_template(&copy.workspace, &copy.name).await {
                Ok(_) => {
                    tracing::info!(
                        template = copy.name,
                        node = copy.from,
                        "removed a copy, because its node has it no more"
                    );
                    copies.forget(&copy.workspace, &copy.name)?;
                }
                // It is removed after its sandboxes.
                Err(TemplateError::InUse(_)) => {}
                Err(error) => return Err(ApiError::from(error).into()),
            },
        }
        Ok(())
    }

    /// Whether this node has a template of the name, even if it is damaged.
    fn has_name(&self, app: &App, listed: &Listed) -> Result<bool, PullError> {
        let templates = app.engine.list_templates(&listed.workspace).map_err(ApiError::from)?;
        let exists = |template: &TemplateSummary| template.is_ready() || template.damage.is_some();
        Ok(templates.iter().any(|template| template.name == listed.name && exists(template)))
    }

    async fn copy_listed(&self, app: &Arc<App>, due: &Due) -> Result<(), PullError> {
        let Due { from, workspace, listed } = due;
        let query = serde_urlencoded::to_string([("workspace", &listed.workspace), ("name", &listed.name)]);
        let path = format!("{OFFER}?{}", query.unwrap_or_default());
        let asking = tokio::time::timeout(ANSWER_WITHIN, self.ask_for(app, from, &path)).await;
        let offer = asking.map_err(|_| PullError::CutOff)??.ok_or_else(|| PullError::Gone(listed.name.clone()))?;
        let report: Report = Arc::new(|_| ());
        let pull = Pull { from: from.clone(), offer };
        self.copy_template(app, workspace, pull, CopyState::Follows, &report).await.map(drop)
    }
}

/// What becomes of a copy, given what this node has under its name. A copy whose template was built anew is replaced later.
fn fate(copy: &CopiedTemplate, here: Option<&str>, lists: &Lists) -> Fate {
    let of_origin = lists.get(&copy.from);
    let at_origin = of_origin.map(|all| all.iter().find(|listed| copy.is_of(&listed.workspace, &listed.name)));
    let is_gone = matches!(at_origin, Some(None));
    let is_rebuilt =
        matches!(at_origin.flatten(), Some(Listed { content: Some(content), .. }) if *content != copy.content);
    match (copy.copied_at, here, copy.state) {
        // The server ended meanwhile, after the last byte or before.
        (None, Some(here), _) if here == copy.content => {
            Fate::Becomes(CopiedTemplate { copied_at: Some(Timestamp::now()), ..copy.clone() })
        }
        (None, ..) => Fate::Forgotten,
        // Somebody has built another one here, or has pulled it again.
        (Some(_), Some(here), _) if here != copy.content => Fate::Forgotten,
        (Some(_), Some(_), CopyState::Follows) if is_gone => Fate::RemovedHere,
        (Some(_), Some(_), _) => Fate::AsItIs,
        (Some(_), None, CopyState::Removed) if is_gone || is_rebuilt => Fate::Forgotten,
        (Some(_), None, CopyState::Removed) => Fate::AsItIs,
        (Some(_), None, _) => Fate::Becomes(CopiedTemplate { state: CopyState::Removed, ..copy.clone() }),
    }
}

/// What could be copied, and from where: what was used most recently first.
fn due(wanted: &PullTemplates, copies: &[CopiedTemplate], lists: &Lists, now: Timestamp) -> Vec<(String, Listed)> {
    let is_wanted = |listed: &Listed| match wanted {
        PullTemplates::Used => now.duration_since(listed.used_at) < RECENT,
        PullTemplates::Named(names) => {
            listed.workspace == sandling_engine::DEFAULT_WORKSPACE && names.contains(&listed.name)
        }
    };
    let is_known = |listed: &Listed| {
        let same = |copy: &CopiedTemplate| Some(&copy.content) == listed.content.as_ref();
        copies.iter().any(|copy| copy.is_of(&listed.workspace, &listed.name) && same(copy))
    };
    let all = lists.iter().flat_map(|(node, listed)| listed.iter().map(move |listed| (node.clone(), listed.clone())));
    let mut due: Vec<_> =
        all.filter(|(_, listed)| listed.content.is_some() && is_wanted(listed) && !is_known(listed)).collect();
    due.sort_by(|(one, first), (other, second)| second.used_at.cmp(&first.used_at).then_with(|| one.cmp(other)));
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        "2026-07-10T12:00:00Z".parse().unwrap()
    }

    fn listed(name: &str, content: &str, hours_ago: i64) -> Listed {
        let [workspace, name] = ["default", name].map(str::to_owned);
        let used_at = now() - SignedDuration::from_hours(hours_ago);
        Listed { workspace, name, content: (!content.is_empty()).then(|| content.to_owned()), bytes: 1, used_at }
    }

    fn copy(content: &str, state: CopyState) -> CopiedTemplate {
        let [workspace, name, from] = ["default", "mine", "a"].map(str::to_owned);
        CopiedTemplate { workspace, name, content: content.to_owned(), from, copied_at: Some(now()), state }
    }

    fn a_has(listed: Vec<Listed>) -> Lists {
        HashMap::from([("a".to_owned(), listed)])
    }

    #[test]
    fn a_copy_goes_with_its_origin_and_one_that_was_removed_here_does_not_come_back() {
        let (follows, stays) = (copy("1", CopyState::Follows), copy("1", CopyState::Stays));
        let removed = copy("1", CopyState::Removed);
        let has = a_has(vec![listed("mine", "1", 1)]);
        let (deleted, rebuilt) = (a_has(vec![]), a_has(vec![listed("mine", "2", 1)]));
        let damaged = a_has(vec![listed("mine", "", 1)]);
        let silent = Lists::new();
        for lists in [&has, &damaged, &silent] {
            assert_eq!(fate(&follows, Some("1"), lists), Fate::AsItIs);
            assert_eq!(fate(&removed, None, lists), Fate::AsItIs);
        }
        assert_eq!(fate(&follows, Some("1"), &deleted), Fate::RemovedHere);
        assert_eq!(fate(&follows, Some("1"), &rebuilt), Fate::AsItIs, "it is replaced");
        for lists in [&deleted, &rebuilt] {
            assert_eq!(fate(&stays, Some("1"), lists), Fate::AsItIs, "somebody has asked for it");
            assert_eq!(fate(&removed, None, lists), Fate::Forgotten);
        }
        assert_eq!(due(&PullTemplates::Used, std::slice::from_ref(&follows), &rebuilt, now()).len(), 1);
        for copy in [&follows, &stays] {
            assert_eq!(fate(copy, None, &has), Fate::Becomes(removed.clone()));
            assert_eq!(fate(copy, Some("built here"), &has), Fate::Forgotten);
        }
        assert!(due(&PullTemplates::Used, &[removed], &has, now()).is_empty());
    }

    #[test]
    fn a_copy_that_was_cut_off_is_forgotten_unless_all_of_it_is_here() {
        let unfinished = CopiedTemplate { copied_at: None, ..copy("1", CopyState::Follows) };
        assert_eq!(fate(&unfinished, None, &Lists::new()), Fate::Forgotten);
        assert_eq!(fate(&unfinished, Some("2"), &Lists::new()), Fate::Forgotten);
        let Fate::Becomes(finished) = fate(&unfinished, Some("1"), &Lists::new()) else { panic!("it is here") };
        assert!(finished.copied_at.is_some() && finished.state == CopyState::Follows);
    }

    #[test]
    fn what_was_used_recently_or_is_named_is_copied() {
        let lists = a_has(vec![listed("old", "1", 8 * 24), listed("mine", "2", 5), listed("base", "3", 1)]);
        let names = |wanted: &PullTemplates, copies: &[CopiedTemplate]| -> Vec<String> {
            due(wanted, copies, &lists, now()).into_iter().map(|(_, listed)| listed.name).collect()
        };
        assert_eq!(names(&PullTemplates::Used, &[]), ["base", "mine"]);
        let named = PullTemplates::Named(["old".to_owned()].into());
        assert_eq!(names(&named, &[]), ["old"]);
        assert_eq!(names(&PullTemplates::Used, &[copy("2", CopyState::Follows)]), ["base"]);
        assert_eq!(
            names(&PullTemplates::Used, &[copy("1", CopyState::Removed)]),
            ["base", "mine"],
            "it was built again"
        );
    }

    #[test]
    fn the_pauses_between_attempts_grow() {
        let pauses: Vec<_> = [1, 2, 3, 7, 100].into_iter().map(|times| pause(times).as_secs()).collect();
        assert_eq!(pauses, [60, 120, 240, 3600, 3600]);
        let mut failures = Failures::default();
        let one = listed("mine", "1", 1);
        assert!(failures.is_due(&one));
        failures.add(&one);
        assert!(!failures.is_due(&one) && failures.is_due(&listed("mine", "2", 1)));
        failures.forget(&one);
        assert!(failures.is_due(&one));
    }
}
