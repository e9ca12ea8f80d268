//! The users and groups of a process, and its capabilities: what it may do.
//!
//! ```text
//!   users    real, effective, saved, files     setuid and its kin change these
//!   groups   the same, and supplementary ones
//!   capabilities  permitted ⊇ effective        follow the users: see `follow`
//! ```

use alloc::vec::Vec;

use linux_raw_sys::general as raw;

use crate::files::Meta;
use crate::{Errno, Result};

/// A number that stands for "as it is".
pub const KEEP: u32 = u32::MAX;

/// Sets of capabilities; bit 0 is `CAP_CHOWN`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Those that may become effective.
    pub permitted: u64,
    /// Those that count.
    pub effective: u64,
    /// Those that a new program may inherit.
    pub inheritable: u64,
}

impl Capabilities {
    /// All that there are.
    pub const ALL: u64 = (1 << (raw::CAP_LAST_CAP + 1)) - 1;
    /// None.
    pub const NONE: Self = Self { permitted: 0, effective: 0, inheritable: 0 };
    /// Those of root.
    pub const ROOT: Self = Self { permitted: Self::ALL, effective: Self::ALL, inheritable: 0 };
}

/// The numbers of one kind: of users, or of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ids {
    /// The one that started the process.
    pub real: u32,
    /// The one that counts.
    pub effective: u32,
    /// One that may become effective again.
    pub saved: u32,
    /// The one that counts for files: follows the effective one.
    pub files: u32,
}

impl Ids {
    /// Four times the same.
    pub const fn all(id: u32) -> Self {
        Self { real: id, effective: id, saved: id, files: id }
    }

    fn has(&self, id: u32) -> bool {
        [self.real, self.effective, self.saved].contains(&id)
    }

    /// `setuid`, `setgid`.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for -1, [`Errno::EPERM`].
    pub fn set(&mut self, id: u32, is_free: bool) -> Result<()> {
        if id == KEEP {
            return Err(Errno::EINVAL);
        }
        match is_free {
            true => *self = Self::all(id),
            false if id == self.real || id == self.saved => {
                (self.effective, self.files) = (id, id);
            }
            false => return Err(Errno::EPERM),
        }
        Ok(())
    }

    /// `setreuid`, `setregid`.
    ///
    /// # Errors
    /// [`Errno::EPERM`].
    pub fn set_two(&mut self, [real, effective]: [u32; 2], is_free: bool) -> Result<()> {
        let may_be_real = [self.real, self.effective, KEEP].contains(&real);
        let may_be_effective = effective == KEEP || self.has(effective);
        if !(is_free || may_be_real && may_be_effective) {
            return Err(Errno::EPERM);
        }
        let old = *self;
        if real != KEEP {
            self.real = real;
        }
        if effective != KEEP {
            (self.effective, self.files) = (effective, effective);
        }
        if real != KEEP || effective != KEEP && effective != old.real {
            self.saved = self.effective;
        }
        Ok(())
    }

    /// `setresuid`, `setresgid`.
    ///
    /// # Errors
    /// [`Errno::EPERM`].
    pub fn set_three(&mut self, new: [u32; 3], is_free: bool) -> Result<()> {
        if !is_free && !new.iter().all(|id| *id == KEEP || self.has(*id)) {
            return Err(Errno::EPERM);
        }
        let places = [&mut self.real, &mut self.effective, &mut self.saved];
        for (place, id) in places.into_iter().zip(new) {
            if id != KEEP {
                *place = id;
            }
        }
        self.files = self.effective;
        Ok(())
    }

    /// `setfsuid`, `setfsgid`: the one before, whether or not it changes.
    pub fn set_files(&mut self, id: u32, is_free: bool) -> u32 {
        let before = self.files;
        if id != KEEP && (is_free || id == before || self.has(id)) {
            self.files = id;
        }
        before
    }
}

/// The users, groups and capabilities of a process.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// Its users.
    pub users: Ids,
    /// Its groups.
    pub groups: Ids,
    /// Its supplementary groups.
    pub others: Vec<u32>,
    /// Its capabilities.
    pub capabilities: Capabilities,
    /// Its capabilities stay permitted when it is root no more (`PR_SET_KEEPCAPS`).
    pub keeps: bool,
}

/// Those of the kernel itself.
pub static ROOT: Credentials = Credentials::root();

impl Credentials {
    /// Root, that may do everything.
    pub const fn root() -> Self {
        Self {
            users: Ids::all(0),
            groups: Ids::all(0),
            others: Vec::new(),
            capabilities: Capabilities::ROOT,
            keeps: false,
        }
    }

    /// Whether this capability is effective.
    pub fn can(&self, capability: u32) -> bool {
        self.capabilities.effective >> capability & 1 != 0
    }

    /// Lets the capabilities follow a change of the users from `before`.
    pub fn follow(&mut self, before: &Ids) {
        let is_root = |ids: &Ids| ids.has(0);
        let (was, now) = (before.effective == 0, self.users.effective == 0);
        let sets = &mut self.capabilities;
        if is_root(before) && !is_root(&self.users) && !self.keeps {
            (sets.permitted, sets.effective) = (0, 0);
        } else if was && !now {
            sets.effective = 0;
        } else if !was && now {
            sets.effective = sets.permitted;
        }
    }

    /// Those under which a new program runs, with the bits and owners of its file.
    pub fn of_program(&self, file: &Meta) -> Self {
        let mut new = self.clone();
        if file.mode & raw::S_ISUID != 0 {
            new.users.effective = file.uid;
        }
        if file.mode & raw::S_ISGID != 0 && file.mode & raw::S_IXGRP != 0 {
            new.groups.effective = file.gid;
        }
        for ids in [&mut new.users, &mut new.groups] {
            (ids.saved, ids.files) = (ids.effective, ids.effective);
        }
        let (real, effective) = (new.users.real == 0, new.users.effective == 0);
        new.capabilities = match (real, effective) {
            (_, true) => Capabilities::ROOT,
            (true, false) => Capabilities { effective: 0, ..Capabilities::ROOT },
            (false, false) => Capabilities::NONE,
        };
        new.keeps = false;
        new
    }

    /// Whether the process is in `group`, for files.
    pub fn is_in(&self, group: u32) -> bool {
        self.groups.files == group || self.others.contains(&group)
    }

    /// Whether it may do all of `rights` (4 read, 2 write, 1 execute or search) to a file.
    ///
    /// # Errors
    /// [`Errno::EACCES`].
    pub fn check(&self, file: &Meta, is_directory: bool, rights: u32) -> Result<()> {
        let class = match file {
            _ if file.uid == self.users.files => 6,
            _ if self.is_in(file.gid) => 3,
            _ => 0,
        };
        if file.mode >> class & rights == rights {
            return Ok(());
        }
        let may_run = is_directory || file.mode & 0o111 != 0;
        let overrides = self.can(raw::CAP_DAC_OVERRIDE) && (rights & 1 == 0 || may_run);
        let reads = rights & 2 == 0 && (is_directory || rights == 4);
        match overrides || reads && self.can(raw::CAP_DAC_READ_SEARCH) {
            true => Ok(()),
            false => Err(Errno::EACCES),
        }
    }

    /// Whether it owns a file, or may act as if.
    ///
    /// # Errors
    /// [`Errno::EPERM`].
    pub fn check_owner(&self, file: &Meta) -> Result<()> {
        let owns = file.uid == self.users.files || self.can(raw::CAP_FOWNER);
        if owns { Ok(()) } else { Err(Errno::EPERM) }
    }

    /// Whether it may send signals to a process with these.
    pub fn may_signal(&self, other: &Self) -> bool {
        let own = [self.users.real, self.users.effective];
        self.can(raw::CAP_KILL)
            || own.iter().any(|id| [other.users.real, other.users.saved].contains(id))
    }

    /// Whether it may read and change the memory of a process with these (as `ptrace`).
    pub fn may_trace(&self, other: &Self) -> bool {
        let is_same =
            |ids: &Ids, own: u32| [ids.real, ids.effective, ids.saved].iter().all(|id| *id == own);
        let same =
            is_same(&other.users, self.users.real) && is_same(&other.groups, self.groups.real);
        let has_more = other.capabilities.permitted & !self.capabilities.permitted != 0;
        self.can(raw::CAP_SYS_PTRACE) || same && !has_more
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: u32) -> Credentials {
        let mut who = Credentials::root();
        let before = who.users;
        who.users.set(id, true).unwrap();
        who.groups.set(id, true).unwrap();
        who.follow(&before);
        who
    }

    fn file(mode: u32, uid: u32, gid: u32) -> Meta {
        let time = crate::files::Time::default();
        Meta { mode, uid, gid, links: 1, accessed: time, modified: time, changed: time }
    }

    #[test]
    fn only_the_class_of_the_caller_counts() {
        let who = user(7);
        assert_eq!(who.check(&file(0o077, 7, 7), false, 4), Err(Errno::EACCES));
        assert_eq!(who.check(&file(0o604, 8, 7), false, 4), Err(Errno::EACCES));
        assert_eq!(who.check(&file(0o604, 8, 8), false, 4), Ok(()));
        assert_eq!(Credentials::root().check(&file(0, 7, 7), false, 6), Ok(()));
        assert_eq!(Credentials::root().check(&file(0, 7, 7), false, 1), Err(Errno::EACCES));
    }

    #[test]
    fn a_root_that_lends_its_rights_away_gets_them_back() {
        let mut who = Credentials::root();
        let before = who.users;
        who.users.set_three([KEEP, 7, KEEP], true).unwrap();
        who.follow(&before);
        assert!(!who.can(raw::CAP_KILL) && who.users.files == 7);
        let before = who.users;
        who.users.set_three([KEEP, 0, KEEP], false).unwrap();
        who.follow(&before);
        assert!(who.can(raw::CAP_KILL));
        let mut other = user(7);
        assert_eq!(other.users.set(0, false), Err(Errno::EPERM));
        assert!(!other.may_signal(&Credentials::root()) && other.may_signal(&user(7)));
    }

    #[test]
    fn a_program_with_its_owners_bit_runs_as_its_owner() {
        let who = user(7).of_program(&file(0o4755, 0, 0));
        assert_eq!((who.users.real, who.users.effective, who.users.saved), (7, 0, 0));
        assert!(who.can(raw::CAP_CHOWN));
        assert_eq!(user(7).of_program(&file(0o755, 0, 0)).capabilities, Capabilities::NONE);
    }
}
