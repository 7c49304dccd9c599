//! Users and groups of the image, by name or number.

use std::fs;

use crate::Failure;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// Finds `user`, `user:group` or `:group`. A user without a group has the group that the image gives it.
pub fn find(text: &str) -> Result<Owner, Failure> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    find_in(&read("/etc/passwd"), &read("/etc/group"), text)
}

fn find_in(passwd: &str, group: &str, text: &str) -> Result<Owner, Failure> {
    let (user, own_group) = text.split_once(':').unwrap_or((text, ""));
    let user = if user.is_empty() { "0" } else { user };
    let entry = entries(passwd).find(|fields| fields[0] == user || fields.get(2) == Some(&user));
    let number = |fields: &[&str], at: usize| fields.get(at).and_then(|field| field.parse().ok());
    let uid = match &entry {
        Some(fields) => number(fields, 2),
        None => user.parse().ok(),
    };
    let uid: u32 = uid.ok_or_else(|| format!("the image has no user {user:?}"))?;
    let gid = if own_group.is_empty() {
        // As in Docker, a number that the image does not know is also the group.
        entry.and_then(|fields| number(&fields, 3)).unwrap_or(uid)
    } else {
        let named = entries(group).find(|fields| fields[0] == own_group).and_then(|fields| number(&fields, 2));
        let gid = named.or_else(|| own_group.parse().ok());
        gid.ok_or_else(|| format!("the image has no group {own_group:?}"))?
    };
    Ok(Owner { uid, gid })
}

fn entries(text: &str) -> impl Iterator<Item = Vec<&str>> {
    text.lines().map(|line| line.split(':').collect())
}

/// The groups and the home of a user that runs a command.
pub fn groups_and_home(owner: Owner, text: &str) -> (Vec<u32>, String) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let (passwd, group) = (read("/etc/passwd"), read("/etc/group"));
    let uid = owner.uid.to_string();
    let user = entries(&passwd).find(|fields| fields.get(2) == Some(&uid.as_str()));
    let home = user.as_ref().and_then(|fields| fields.get(5)).map_or("/", |home| home).to_owned();
    let mut groups = vec![owner.gid];
    if !text.contains(':')
        && let Some(user) = user
    {
        let member =
            |fields: &Vec<&str>| fields.get(3).is_some_and(|members| members.split(',').any(|one| one == user[0]));
        groups.extend(entries(&group).filter(member).filter_map(|fields| fields.get(2)?.parse::<u32>().ok()));
    }
    (groups, home)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_found_by_name_and_by_number() {
        let (passwd, group) = ("root:x:0:0::/root:/bin/sh\nann:x:1000:1001::/home/ann:/bin/sh\n", "video:x:44:ann\n");
        let ids = |text| find_in(passwd, group, text).map(|owner| (owner.uid, owner.gid));
        assert_eq!(ids("ann"), Ok((1000, 1001)));
        assert_eq!(ids("1000"), Ok((1000, 1001)));
        assert_eq!(ids("ann:video"), Ok((1000, 44)));
        assert_eq!(ids("7:8"), Ok((7, 8)));
        assert_eq!(ids("7"), Ok((7, 7)));
        assert!(ids("bob").unwrap_err().contains("no user") && ids("ann:staff").unwrap_err().contains("no group"));
        assert_eq!(find_in("", "", "0:0"), Ok(Owner { uid: 0, gid: 0 }));
    }
}
