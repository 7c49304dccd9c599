//! The line that activates an interpreter as a script or a context.

use sandling_protocol::{Failure, Language};
use serde::Serialize;

use crate::environment::Variables;
use crate::exec::{Setting, text_of};

/// Variables that an interpreter reads only at startup.
const READ_AT_START: [&str; 2] = ["NODE_OPTIONS", "NODE_PATH"];
const PYTHON_TOLD_LATER: [&str; 3] = ["PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"];
/// The official images set these for their own builds. Python does not read them.
const NOT_OF_PYTHON: [&str; 6] = [
    "PYTHON_VERSION",
    "PYTHON_SHA256",
    "PYTHON_PIP_VERSION",
    "PYTHON_SETUPTOOLS_VERSION",
    "PYTHON_GET_PIP_URL",
    "PYTHON_GET_PIP_SHA256",
];

/// Whether Python may read this variable itself.
fn is_of_python(name: &str) -> bool {
    name.starts_with("PYTHON") && !NOT_OF_PYTHON.contains(&name)
}

/// What an interpreter already has, so that its activation can leave it out.
#[derive(Default)]
pub struct Prepared {
    /// The environment that it has set already.
    pub environment: Option<Variables>,
    /// No package was installed since its zygote started.
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

    pub fn activation(&self, setting: &Setting, prepared: &Prepared) -> Vec<u8> {
        let script = Some((self.code.as_str(), self.args.as_slice()));
        line(setting, prepared, "script", script)
    }
}

pub fn context_activation(setting: &Setting, prepared: &Prepared) -> Vec<u8> {
    line(setting, prepared, "context", None)
}

/// Whether some of these variables only work for an interpreter that is started with them.
pub fn needs_fresh_start(variables: &Variables) -> bool {
    variables.keys().any(|name| {
        let python = is_of_python(name) && !PYTHON_TOLD_LATER.contains(&name.as_str());
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
    /// A script reports its end before its process exits, because the exit takes longer than many scripts run.
    report_end: bool,
    /// `None`: the interpreter has the environment, except for `more_env`.
    env: Option<&'a Variables>,
    #[serde(skip_serializing_if = "Variables::is_empty")]
    more_env: Variables,
    packages_changed: bool,
    cwd: &'a str,
    uid: u32,
    gid: u32,
    groups: &'a [u32],
    /// Always `None`: every live interpreter gets a reseed line before this one.
    entropy: Option<&'a str>,
}

fn line(setting: &Setting, prepared: &Prepared, r#become: &str, script: Option<(&str, &[String])>) -> Vec<u8> {
    let ids = &setting.user.ids;
    let more = prepared.environment.as_ref().and_then(|known| additions(known, &setting.variables));
    let activation = Activation {
        r#become,
        code: script.map(|(code, _)| code),
        args: script.map(|(_, args)| args),
        report_end: script.is_some(),
        env: Some(&setting.variables).filter(|_| more.is_none()),
        more_env: more.unwrap_or_default(),
        packages_changed: !prepared.packages,
        cwd: &setting.directory,
        uid: ids.uid,
        gid: ids.gid,
        groups: &ids.groups,
        entropy: None,
    };
    serde_json::to_vec(&activation).expect("strings and numbers are always valid JSON")
}

/// The variables to add to the `known` ones to get the `wanted` ones. `None` if one must be removed, or if the interpreter
/// has to do more than set it.
fn additions(known: &Variables, wanted: &Variables) -> Option<Variables> {
    let more = wanted.iter().filter(|(name, value)| known.get(*name) != Some(value));
    let more: Variables = more.map(|(name, value)| (name.clone(), value.clone())).collect();
    let is_plain = |name: &String| name != "TZ" && !is_of_python(name);
    (known.keys().all(|name| wanted.contains_key(name)) && more.keys().all(is_plain)).then_some(more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_variables_are_sent() {
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
    fn only_variables_read_at_startup_need_a_new_interpreter() {
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
        let line = script.activation(&setting, &Prepared::default());
        assert!(!line.contains(&b'\n'));
        let value: serde_json::Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(
            (&value["become"], &value["args"][0], &value["entropy"]),
            (&"script".into(), &"x".into(), &().into())
        );
    }
}
