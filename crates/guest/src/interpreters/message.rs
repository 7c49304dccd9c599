//! Messages from drivers, one line each.

use std::path::PathBuf;

use sandling_protocol::Traceback;
use serde::Deserialize;
use serde_json::value::RawValue;

/// The fields of all messages; a line has the fields of one.
#[derive(Debug, Default, Deserialize)]
pub struct Message<'a> {
    /// A zygote or spare is ready.
    #[serde(default)]
    pub ready: bool,
    #[serde(default)]
    pub failed_imports: Vec<String>,
    /// The folders of packages that a zygote may have loaded, and their modification times in nanoseconds.
    #[serde(default)]
    pub folders: Vec<(PathBuf, Option<i64>)>,
    /// The folder of a user's own packages, relative to the home directory.
    #[serde(default)]
    pub own_folder: Option<PathBuf>,
    /// The process of a spare that a zygote has forked, or of the sender.
    #[serde(default)]
    pub pid: Option<u32>,
    /// A context is ready for cells, or a script is about to run.
    #[serde(default)]
    pub activated: bool,
    #[serde(default)]
    pub failed: Option<String>,
    /// A script has ended with this exit status, or by a signal, whose number is then negative. Its process ends soon.
    #[serde(default)]
    pub ended: Option<i32>,
    /// A rich result: a map from MIME type to string.
    #[serde(default, borrow)]
    pub result: Option<&'a RawValue>,
    /// The result is the value of the cell, not something that it displayed.
    #[serde(default)]
    pub value: bool,
    /// The cell with this number has ended.
    #[serde(default)]
    pub done: Option<u64>,
    #[serde(default)]
    pub status: Option<Status>,
    #[serde(default)]
    pub error: Option<Traceback>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Error,
    Interrupted,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_contract_is_understood() {
        let read = |line| serde_json::from_str::<Message>(line).unwrap();
        assert!(read(r#"{"ready":true,"failed_imports":["x"]}"#).ready);
        let ready = read(r#"{"ready":true,"folders":[["/a",1700000000000000001],["/b",null]],"own_folder":"lib"}"#);
        assert_eq!(ready.folders, [("/a".into(), Some(1_700_000_000_000_000_001)), ("/b".into(), None)]);
        assert_eq!(read(r#"{"pid": 7}"#).pid, Some(7));
        assert_eq!(read(r#"{"failed":"no such directory"}"#).failed.unwrap(), "no such directory");
        assert_eq!(read(r#"{"ended":-2}"#).ended, Some(-2));
        assert_eq!(read(r#"{"result": {"text/plain":"é\n"}}"#).result.unwrap().get(), r#"{"text/plain":"é\n"}"#);
        let done = read(r#"{"done":3,"status":"error","error":{"name":"E","value":"v","text":"t"}}"#);
        assert_eq!((done.done, done.status, done.error.unwrap().name.as_str()), (Some(3), Some(Status::Error), "E"));
        assert_eq!(read(r#"{"done":4,"status":"ok","error":null}"#).error, None);
    }
}
