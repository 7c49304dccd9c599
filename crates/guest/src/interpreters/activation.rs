//! The line that makes a spare interpreter somebody's.

use sandling_protocol::{Failure, FailureKind, Language};
use serde::Serialize;

use crate::environment::Variables;
use crate::exec::Setting;
use crate::failure::failure;

/// What an interpreter reads at its start and cannot be told later.
const READ_AT_START: [&str; 2] = ["NODE_OPTIONS", "NODE_PATH"];
const PYTHON_TOLD_LATER: [&str; 3] = ["PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"];

/// What a spare need not be told.
#[derive(Default)]
pub struct Knows {
    /// The environment that it has taken on already.
    pub environment: Option<Variables>,
    /// Nothing was installed since its zygote looked.
    pub packages: bool,
}

/// Code to run once.
pub struct Script {
    pub language: Language,
    code: String,
    args: Vec<String>,
}

impl Script {
    pub fn new(language: Language, code: &[u8], args: &[String]) -> Result<Self, Failure> {
        let code = text_of(code)?;
        Ok(Self { language, code: code.to_owned(), args: args.to_vec() })
    }

    pub fn activation(&self, setting: &Setting, knows: &Knows) -> Vec<u8> {
        let script = Some((self.code.as_str(), self.args.as_slice()));
        line(setting, knows, "script", script)
    }
}

pub fn text_of(code: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(code).map_err(|_| failure(FailureKind::Invalid, "the code is not UTF-8"))
}

pub fn context_activation(setting: &Setting, knows: &Knows) -> Vec<u8> {
    line(setting, knows, "context", None)
}

/// Whether these variables only work for an interpreter that is started with them.
pub fn needs_fresh_start(variables: &Variables) -> bool {
    variables.keys().any(|name| {
        let python = name.starts_with("PYTHON") && !PYTHON_TOLD_LATER.contains(&name.as_str());
        python || READ_AT_START.contains(&name.as_str())
    })
}

#[derive(Serialize)]
struct Activation<'a> {
    r#become: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a [String]>,
    /// A script's end is told before its process has been taken down, which takes longer than many scripts.
    report_end: bool,
    /// Absent: it has it, but for what follows.
    env: Option<&'a Variables>,
    #[serde(skip_serializing_if = "Variables::is_empty")]
    more_env: Variables,
    packages_changed: bool,
    cwd: &'a str,
    uid: u32,
    gid: u32,
    groups: &'a [u32],
    /// Never given here: a reseed is a line of its own, sent to every live interpreter before this one.
    entropy: Option<&'a str>,
}

fn line(setting: &Setting, knows: &Knows, r#become: &str, script: Option<(&str, &[String])>) -> Vec<u8> {
    let ids = &setting.user.ids;
    let more = knows.environment.as_ref().and_then(|known| additions(known, &setting.variables));
    let activation = Activation {
        r#become,
        code: script.map(|(code, _)| code),
        args: script.map(|(_, args)| args),
        report_end: script.is_some(),
        env: Some(&setting.variables).filter(|_| more.is_none()),
        more_env: more.unwrap_or_default(),
        packages_changed: !knows.packages,
        cwd: &setting.directory,
        uid: ids.uid,
        gid: ids.gid,
        groups: &ids.groups,
        entropy: None,
    };
    serde_json::to_vec(&activation).expect("strings and numbers are always valid JSON")
}

/// What to add to the `known` variables so that they are the `wanted` ones. There is no such thing if any is to go away,
/// or if an interpreter has to do more with it than to have it.
fn additions(known: &Variables, wanted: &Variables) -> Option<Variables> {
    let more = wanted.iter().filter(|(name, value)| known.get(*name) != Some(value));
    let more: Variables = more.map(|(name, value)| (name.clone(), value.clone())).collect();
    let is_plain = |name: &String| name != "TZ" && !name.starts_with("PYTHON");
    (known.keys().all(|name| wanted.contains_key(name)) && more.keys().all(is_plain)).then_some(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_new_is_told() {
        let of = |pairs: &[(&str, &str)]| -> Variables {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let known = of(&[("HOME", "/root"), ("PATH", "/bin")]);
        assert_eq!(additions(&known, &known), Some(of(&[])));
        let wanted = of(&[("HOME", "/home/user"), ("PATH", "/bin"), ("A", "1")]);
        assert_eq!(additions(&known, &wanted), Some(of(&[("A", "1"), ("HOME", "/home/user")])));
        assert_eq!(additions(&known, &of(&[("HOME", "/root")])), None);
        assert_eq!(additions(&known, &of(&[("HOME", "/root"), ("PATH", "/bin"), ("TZ", "UTC")])), None);
        assert_eq!(additions(&known, &of(&[("HOME", "/root"), ("PATH", "/bin"), ("PYTHONPATH", "/x")])), None);
    }

    #[test]
    fn only_variables_read_at_the_start_call_for_a_fresh_one() {
        let with = |name: &str| Variables::from([(name.to_owned(), "1".to_owned())]);
        assert!(needs_fresh_start(&with("PYTHONHASHSEED")));
        assert!(needs_fresh_start(&with("NODE_OPTIONS")));
        assert!(!needs_fresh_start(&with("PYTHONPATH")));
        assert!(!needs_fresh_start(&with("HOME")));
    }

    #[test]
    fn an_activation_is_one_line() {
        let setting = Setting::ours(Variables::from([("A".into(), "b\nc".into())]));
        let script = Script::new(Language::Python, b"print('\n')", &["x".into()]).unwrap();
        let line = script.activation(&setting, &Knows::default());
        assert!(!line.contains(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (&value["become"], &value["args"][0], &value["entropy"]),
            (&"script".into(), &"x".into(), &().into())
        );
    }
}
