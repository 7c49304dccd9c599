//! Builds of templates as they are remembered, also after the process that was at them.

use jiff::Timestamp;
use sandling_engine::store::StoreError;

use crate::access::Access;

/// What is remembered of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildRecord {
    pub id: String,
    pub workspace: String,
    /// What the template is to be called.
    pub name: String,
    pub started_at: Timestamp,
    /// Nothing yet, or never: it was cut off.
    pub ended: Option<(Timestamp, BuildEnd)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BuildEnd {
    Done { bytes: u64 },
    Failed { why: String, step: String },
}

impl Access {
    /// Writes down a build that this process is at.
    pub fn begin_build(&self, build: &BuildRecord) -> Result<(), StoreError> {
        self.store.insert_build(build, self.owner.id())
    }

    pub fn end_build(&self, id: &str, at: Timestamp, end: &BuildEnd) -> Result<(), StoreError> {
        self.store.end_build(id, at, end)
    }

    pub fn forget_build(&self, id: &str) -> Result<(), StoreError> {
        self.store.remove_build(id)
    }

    /// The builds that no process is at, oldest first. One without an end was cut off.
    pub fn past_builds(&self) -> Result<Vec<BuildRecord>, StoreError> {
        let all = self.store.builds()?.into_iter();
        Ok(all.filter(|(build, owner)| build.ended.is_some() || !self.runs(owner)).map(|(build, _)| build).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AccessSettings;
    use crate::access::tests::Fixture;

    #[test]
    fn a_build_is_known_after_its_process_and_one_that_was_cut_off_has_no_end() {
        let fixture = Fixture::new();
        let build = |id: &str| BuildRecord {
            id: id.to_owned(),
            workspace: "default".to_owned(),
            name: "mine".to_owned(),
            started_at: Timestamp::from_second(7).unwrap(),
            ended: None,
        };
        let ends = [
            ("done", BuildEnd::Done { bytes: 9 }),
            ("failed", BuildEnd::Failed { why: "no".to_owned(), step: "1".to_owned() }),
        ];
        for id in ["cut-off", "done", "failed", "forgotten"] {
            fixture.access.begin_build(&build(id)).unwrap();
        }
        for (id, end) in &ends {
            fixture.access.end_build(id, Timestamp::from_second(8).unwrap(), end).unwrap();
        }
        fixture.access.forget_build("forgotten").unwrap();
        let other = Access::open(&fixture.home, AccessSettings::default()).unwrap();
        assert_eq!(other.past_builds().unwrap().len(), 2, "somebody is at the third");
        let Fixture { access, home, _dir } = fixture;
        drop((access, other));
        let found = Access::open(&home, AccessSettings::default()).unwrap().past_builds().unwrap();
        let ended = |end: &BuildEnd| Some((Timestamp::from_second(8).unwrap(), end.clone()));
        let [(_, done), (_, failed)] = &ends;
        let expected = [
            build("cut-off"),
            BuildRecord { ended: ended(done), ..build("done") },
            BuildRecord { ended: ended(failed), ..build("failed") },
        ];
        assert_eq!(found, expected);
    }
}
