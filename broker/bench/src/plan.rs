//! Who connects and who writes where.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::options::{Mode, Options, Users};

/// Channel type of a person channel.
pub(crate) const PERSON: u8 = 1;
/// Channel type of a group.
pub(crate) const GROUP: u8 = 2;

/// A user with one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct User {
    /// Its id.
    pub(crate) uid: String,
    /// Its proof.
    pub(crate) token: String,
}

/// A channel that a connection writes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Its number in the plan.
    pub(crate) channel: u32,
    /// Its id as this sender spells it.
    pub(crate) channel_id: String,
    /// Its type.
    pub(crate) channel_type: u8,
    /// How many others get what is written.
    pub(crate) receivers: u64,
}

/// A group that must exist before the run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    /// Its id.
    pub(crate) id: String,
    /// The uids of its members.
    pub(crate) members: Vec<String>,
}

/// The whole cast of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The users, by number.
    pub(crate) users: Vec<User>,
    /// The numbers of the members of each channel, by its number.
    pub(crate) members: Vec<Vec<u32>>,
    /// Where each user writes, by its number.
    pub(crate) lanes: Vec<Vec<Lane>>,
    /// The groups to create.
    pub(crate) groups: Vec<Group>,
}

/// The users of a run: this many new ones, or the first of a file.
///
/// # Errors
/// When the file cannot be read or has too few.
pub(crate) fn users(who: &Users, run: u64, count: usize) -> Result<Vec<User>> {
    match who {
        Users::New(token) => Ok((0..count)
            .map(|number| User {
                uid: format!("bench-{run:x}-{number}"),
                token: token.clone(),
            })
            .collect()),
        Users::File(path) => from_file(path, count),
    }
}

fn from_file(path: &Path, count: usize) -> Result<Vec<User>> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the users of {}", path.display()))?;
    let users: Vec<User> = text
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .map(|(uid, token)| User {
            uid: uid.to_owned(),
            token: token.trim().to_owned(),
        })
        .take(count)
        .collect();
    if users.len() < count {
        bail!(
            "{} has {} users with a token, but {count} connect: add lines, or lower --connections",
            path.display(),
            users.len()
        );
    }
    Ok(users)
}

impl Plan {
    /// The cast of these options.
    #[must_use]
    pub(crate) fn new(options: &Options, run: u64, users: Vec<User>) -> Self {
        match options.mode {
            Mode::Person => Self::pairs(users),
            Mode::Group => {
                let places = (0..options.groups)
                    .map(|group| {
                        let first = group * options.members;
                        let place = |member| number((first + member) % users.len());
                        (0..options.members).map(place).collect()
                    })
                    .collect();
                Self::grouped(users, run, places, |_| true)
            }
            Mode::Fanout => {
                let all = (0..users.len()).map(number).collect();
                Self::grouped(users, run, vec![all], |sender| sender == 0)
            }
            Mode::Idle | Mode::Login => Self::silent(users),
        }
    }

    /// Users who only connect.
    #[must_use]
    pub(crate) fn silent(users: Vec<User>) -> Self {
        Self {
            lanes: vec![Vec::new(); users.len()],
            users,
            ..Self::default()
        }
    }

    /// Each two neighbours write to each other.
    #[must_use]
    pub(crate) fn pairs(users: Vec<User>) -> Self {
        let mut plan = Self::silent(users);
        for pair in 0..plan.users.len() / 2 {
            let (left, right) = (2 * pair, 2 * pair + 1);
            plan.members.push(vec![number(left), number(right)]);
            for (sender, other) in [(left, right), (right, left)] {
                plan.lanes[sender].push(Lane {
                    channel: number(pair),
                    channel_id: plan.users[other].uid.clone(),
                    channel_type: PERSON,
                    receivers: 1,
                });
            }
        }
        plan
    }

    fn grouped(users: Vec<User>, run: u64, groups: Vec<Vec<u32>>, writes: impl Fn(u32) -> bool) -> Self {
        let mut plan = Self::silent(users);
        for (channel, members) in groups.iter().enumerate() {
            let id = format!("bench-{run:x}-g{channel}");
            for member in members.iter().copied().filter(|member| writes(*member)) {
                plan.lanes[member as usize].push(Lane {
                    channel: number(channel),
                    channel_id: id.clone(),
                    channel_type: GROUP,
                    receivers: members.len() as u64 - 1,
                });
            }
            let uid = |member: &u32| plan.users[*member as usize].uid.clone();
            plan.groups.push(Group {
                members: members.iter().map(uid).collect(),
                id,
            });
        }
        plan.members = groups;
        plan
    }
}

/// The options bound all counts far below 2^32.
fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Command;

    fn plan(line: &str) -> Plan {
        let line = format!("--target tcp://h:1 {line}");
        let Ok(Command::Drive(options)) = Command::parse(line.split(' ').map(str::to_owned)) else {
            panic!("{line}")
        };
        let users = users(&options.users, 0xab, options.connections).expect("new users");
        Plan::new(&options, 0xab, users)
    }

    #[test]
    fn neighbours_write_to_each_other() {
        let plan = plan("--mode person --connections 4");
        assert_eq!(plan.members, [vec![0, 1], vec![2, 3]]);
        let peers: Vec<&str> = plan
            .lanes
            .iter()
            .flatten()
            .map(|lane| lane.channel_id.as_str())
            .collect();
        assert_eq!(peers, ["bench-ab-1", "bench-ab-0", "bench-ab-3", "bench-ab-2"]);
        assert_eq!(plan.lanes[3][0].channel, 1);
        assert!(plan.groups.is_empty());
    }

    #[test]
    fn every_member_of_a_group_writes_and_a_user_may_be_in_several() {
        let plan = plan("--mode group --groups 2 --members 3 --connections 4 --api http://h:2");
        assert_eq!(plan.members, [vec![0, 1, 2], vec![3, 0, 1]]);
        assert_eq!(plan.lanes.iter().map(Vec::len).collect::<Vec<_>>(), [2, 2, 1, 1]);
        assert_eq!(plan.groups[1].members, ["bench-ab-3", "bench-ab-0", "bench-ab-1"]);
        assert_eq!(plan.lanes[0][1].receivers, 2);
    }

    #[test]
    fn one_writes_and_all_others_receive() {
        let plan = plan("--mode fanout --connections 5 --api http://h:2");
        assert!(plan.lanes[1..].iter().all(Vec::is_empty));
        assert_eq!(plan.lanes[0][0].receivers, 4);
        assert_eq!(plan.members, [vec![0, 1, 2, 3, 4]]);
    }

    #[test]
    fn users_of_a_file_have_their_own_tokens() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("users");
        std::fs::write(&path, "alice secret\n\n  bob\tother \n").expect("written");
        let found = users(&Users::File(path.clone()), 1, 2).expect("two users");
        assert_eq!(
            (found[0].uid.as_str(), found[0].token.as_str()),
            ("alice", "secret")
        );
        assert_eq!((found[1].uid.as_str(), found[1].token.as_str()), ("bob", "other"));
        let error = users(&Users::File(path), 1, 3).expect_err("too few");
        assert!(error.to_string().contains("has 2 users"), "{error}");
    }
}
