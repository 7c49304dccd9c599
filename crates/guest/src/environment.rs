//! The environment of commands and interpreters.

use std::collections::BTreeMap;
use std::ffi::CString;

use sandling_protocol::{Failure, FailureKind};

use crate::failure::failure;
use crate::users::User;

pub type Variables = BTreeMap<String, String>;

const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Puts the environment together: the defaults, the user's, the sandbox's, the command's own. Later ones win.
pub fn compose(sandbox: &Variables, user: &User, own: &Variables) -> Variables {
    let mut all: Variables = [("PATH", PATH), ("LANG", "C.UTF-8"), ("TERM", "xterm-256color")]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let home = if user.home.is_empty() { "/" } else { &user.home };
    for (name, value) in [("HOME", home), ("USER", &user.name), ("LOGNAME", &user.name)] {
        all.insert(name.to_owned(), value.to_owned());
    }
    for (name, value) in sandbox.iter().chain(own) {
        all.insert(name.clone(), value.clone());
    }
    all
}

/// The environment in the kernel's form.
pub fn to_c(variables: &Variables) -> Result<Vec<CString>, Failure> {
    let to_c = |(name, value): (&String, &String)| {
        if name.is_empty() || name.contains('=') {
            return Err(failure(
                FailureKind::Invalid,
                format!("{name:?} is not a valid name for an environment variable"),
            ));
        }
        c_string(format!("{name}={value}"), "an environment variable")
    };
    variables.iter().map(to_c).collect()
}

pub fn c_string(text: impl Into<Vec<u8>>, what: &str) -> Result<CString, Failure> {
    CString::new(text).map_err(|_| failure(FailureKind::Invalid, format!("{what} contains a NUL byte")))
}

/// The paths to try for a program, in the order of the command's own `PATH`.
pub fn candidates(program: &str, variables: &Variables) -> Vec<String> {
    if program.contains('/') {
        return vec![program.to_owned()];
    }
    let path = variables.get("PATH").map_or(PATH, String::as_str);
    path.split(':').map(|dir| format!("{}/{program}", if dir.is_empty() { "." } else { dir })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::launch::Ids;

    #[test]
    fn the_commands_own_variables_win_over_all_others() {
        let user = User { name: "ann".into(), home: "/home/ann".into(), ids: Ids { uid: 1, gid: 1, groups: vec![] } };
        let sandbox = Variables::from([("A".into(), "sandbox".into()), ("HOME".into(), "/elsewhere".into())]);
        let own = Variables::from([("A".into(), "own".into())]);
        let all = compose(&sandbox, &user, &own);
        assert_eq!((all["A"].as_str(), all["HOME"].as_str(), all["USER"].as_str()), ("own", "/elsewhere", "ann"));
        assert_eq!(all["LANG"], "C.UTF-8");
    }

    #[test]
    fn a_program_with_a_slash_is_not_searched_for() {
        let path = Variables::from([("PATH".into(), "/a::/b".into())]);
        assert_eq!(candidates("./x", &path), ["./x"]);
        assert_eq!(candidates("x", &path), ["/a/x", "./x", "/b/x"]);
    }

    #[test]
    fn a_name_with_an_equals_sign_is_refused() {
        assert!(to_c(&Variables::from([("A=B".into(), String::new())])).is_err());
        assert!(to_c(&Variables::from([("A".into(), "x\0y".into())])).is_err());
    }
}
