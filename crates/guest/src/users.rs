//! Users and groups, read from `/etc` directly, because a static binary has no name service.

use std::fs;

use sandling_protocol::{Failure, FailureKind};

use crate::failure::failure;
use crate::sys::launch::Ids;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub home: String,
    pub ids: Ids,
}

impl User {
    /// Finds a user by name or number, as `user` or `user:group`. `None`: the agent's own user, which is root in a sandbox.
    pub fn find(wanted: Option<&str>) -> Result<Self, Failure> {
        let own = rustix::process::geteuid();
        if own.is_root() && wanted.is_none_or(|wanted| wanted == "root") {
            return Ok(Self::root());
        }
        let own = own.as_raw().to_string();
        let passwd = fs::read_to_string("/etc/passwd").unwrap_or_default();
        let group = fs::read_to_string("/etc/group").unwrap_or_default();
        let wanted = wanted.unwrap_or(&own);
        let user = find_in(&passwd, &group, wanted)
            .ok_or_else(|| failure(FailureKind::Invalid, format!("there is no user {wanted:?}")))?;
        if own != "0" && user.ids.uid.to_string() != own {
            let message = format!("only root can run a command as {wanted:?}");
            return Err(failure(FailureKind::PermissionDenied, message));
        }
        Ok(user)
    }

    /// The agent's own user, without reading files: most commands run as root, and reading takes time.
    fn root() -> Self {
        Self { name: "root".to_owned(), home: "/root".to_owned(), ids: Ids { uid: 0, gid: 0, groups: vec![0] } }
    }

    pub fn ourselves() -> Self {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self { name: uid.to_string(), home: "/".to_owned(), ids: Ids { uid, gid, groups: vec![gid] } }
    }

    /// The ids that a new process must switch to; `None` if it has them already.
    pub fn change(&self) -> Option<Ids> {
        let ours = rustix::process::geteuid();
        (ours.is_root() && self.ids.uid != 0).then(|| self.ids.clone())
    }
}

fn find_in(passwd: &str, group: &str, wanted: &str) -> Option<User> {
    let Some((wanted, own)) = wanted.split_once(':') else { return find_user(passwd, group, wanted) };
    // Docker calls a user without a name `0`. As in Docker, another group replaces all groups that the user is in.
    let mut user = find_user(passwd, group, if wanted.is_empty() { "0" } else { wanted })?;
    user.ids.gid = group_id(group, own)?;
    user.ids.groups = vec![user.ids.gid];
    Some(user)
}

/// The number of a group by name or number. A number without an entry is a group, too.
fn group_id(group: &str, wanted: &str) -> Option<u32> {
    let named = group.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(wanted)).then(|| fields.nth(1)?.parse().ok()).flatten()
    });
    named.or_else(|| wanted.parse().ok())
}

fn find_user(passwd: &str, group: &str, wanted: &str) -> Option<User> {
    let known = passwd.lines().filter_map(parse_user);
    let number = wanted.parse::<u32>().ok();
    let user = known.into_iter().find(|user| user.name == wanted || Some(user.ids.uid) == number);
    // As for the kernel, a number without an entry is a user, too.
    let mut user = user.or_else(|| {
        let ids = Ids { uid: number?, gid: number?, groups: Vec::new() };
        Some(User { name: wanted.to_owned(), home: "/".to_owned(), ids })
    })?;
    user.ids.groups = groups_of(group, &user.name, user.ids.gid);
    Some(user)
}

fn parse_user(line: &str) -> Option<User> {
    let fields: Vec<&str> = line.split(':').collect();
    let [name, _, uid, gid, _, home, ..] = fields.as_slice() else {
        return None;
    };
    let ids = Ids { uid: uid.parse().ok()?, gid: gid.parse().ok()?, groups: Vec::new() };
    Some(User { name: (*name).to_owned(), home: (*home).to_owned(), ids })
}

fn groups_of(group: &str, name: &str, own: u32) -> Vec<u32> {
    let mut groups = vec![own];
    for line in group.lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [_, _, gid, members] = fields.as_slice() else {
            continue;
        };
        if let Ok(gid) = gid.parse()
            && gid != own
            && members.split(',').any(|member| member == name)
        {
            groups.push(gid);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nbroken\nann:x:1000:1001:Ann,,,:/home/ann:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nann:x:1001:\nvideo:x:44:bob,ann\nsudo:x:27:anne\n";

    #[test]
    fn a_user_is_found_by_name_and_by_number_with_all_groups() {
        let by_name = find_in(PASSWD, GROUP, "ann").unwrap();
        assert_eq!(by_name.ids, Ids { uid: 1000, gid: 1001, groups: vec![1001, 44] });
        assert_eq!(by_name.home, "/home/ann");
        assert_eq!(find_in(PASSWD, GROUP, "1000").unwrap(), by_name);
    }

    #[test]
    fn a_group_after_a_colon_replaces_the_users_groups() {
        let ids = |wanted| find_in(PASSWD, GROUP, wanted).map(|user| (user.ids.uid, user.ids.gid, user.ids.groups));
        assert_eq!(ids("ann:video"), Some((1000, 44, vec![44])));
        assert_eq!(ids("1000:44"), Some((1000, 44, vec![44])));
        assert_eq!(ids("4242:4343"), Some((4242, 4343, vec![4343])));
        assert_eq!(ids(":video"), Some((0, 44, vec![44])));
        assert_eq!(ids("ann:nobody"), None);
    }

    #[test]
    fn a_number_without_an_entry_is_a_user_and_a_name_is_not() {
        assert_eq!(find_in(PASSWD, GROUP, "4242").unwrap().ids, Ids { uid: 4242, gid: 4242, groups: vec![4242] });
        assert_eq!(find_in(PASSWD, GROUP, "nobody"), None);
        assert_eq!(find_in(PASSWD, GROUP, "broken"), None);
    }
}
