//! Landlock: every right that this kernel supports, granted as the policy lists, fully enforced or not at all.
//!
//! The supported rights are found by requesting them as hard requirements; no right is dropped silently.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};

/// Versions that added a right, newest first.
const VERSIONS: [ABI; 7] = [
    ABI::V9,
    ABI::V6,
    ABI::V5,
    ABI::V4,
    ABI::V3,
    ABI::V2,
    ABI::V1,
];
/// Devices of a child in reduced mode, where `/dev` is the host's. Terminals are not included: `/dev/pts` also holds
/// those of the user, and a process that can open one reads what is typed. A child that needs terminals has them in
/// `SandboxPolicy::devices`.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// The newest version that both this kernel and this program support.
pub(super) fn version() -> ABI {
    VERSIONS
        .into_iter()
        .find(|version| handles(*version).is_ok())
        .unwrap_or(ABI::Unsupported)
}

fn handles(version: ABI) -> Result<Ruleset, RulesetError> {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let ruleset = ruleset.handle_access(AccessFs::from_all(version))?;
    match Scope::from_all(version).is_empty() {
        true => Ok(ruleset),
        false => ruleset.scope(Scope::from_all(version)),
    }
}

/// Restricts this process; returns whether the abstract sockets and signals of others are out of its reach.
pub(super) fn restrict(policy: &SandboxPolicy) -> Result<bool, SandboxFailure> {
    let failure = |what: String| SandboxFailure {
        layer: SandboxLayer::Landlock,
        what,
    };
    let version = version();
    if version == ABI::Unsupported {
        return Err(failure("this kernel has no Landlock".to_owned()));
    }
    if policy.mode == SandboxMode::Reduced && version < ABI::V3 {
        return Err(failure(format!(
            "this kernel has Landlock ABI {}; 3 is needed",
            version as i32
        )));
    }
    let status = ruleset(policy, version)
        .and_then(|ruleset| grant(ruleset, policy, version))
        .and_then(RulesetCreated::restrict_self)
        .map_err(|error| failure(format!("Landlock: {error}")))?;
    match status.ruleset {
        RulesetStatus::FullyEnforced => Ok(ABI::V6 <= version),
        other => Err(failure(format!(
            "Landlock is not fully enforced: {other:?}"
        ))),
    }
}

fn ruleset(policy: &SandboxPolicy, version: ABI) -> Result<RulesetCreated, RulesetError> {
    let ruleset = handles(version)?;
    // A network namespace has its own loopback, and a rule would have to name each of its ports.
    let has_no_sockets = policy.mode == SandboxMode::Reduced && !policy.network;
    let ruleset = match has_no_sockets && ABI::V4 <= version {
        true => ruleset.handle_access(AccessNet::from_all(version))?,
        false => ruleset,
    };
    ruleset.create()
}

fn grant(
    mut ruleset: RulesetCreated,
    policy: &SandboxPolicy,
    version: ABI,
) -> Result<RulesetCreated, RulesetError> {
    for (path, rights) in rules(policy, version) {
        // What no longer exists needs no rule.
        let Ok(descriptor) = PathFd::new(&path) else {
            continue;
        };
        let rights = if path.is_dir() {
            rights
        } else {
            rights & AccessFs::from_file(version)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, rights))?;
    }
    Ok(ruleset)
}

/// The rights that a policy grants below each path.
fn rules(policy: &SandboxPolicy, version: ABI) -> Vec<(PathBuf, BitFlags<AccessFs>)> {
    let read = AccessFs::from_read(version);
    let change = AccessFs::from_all(version) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let list: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let device = (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir)
        | (AccessFs::from_all(version) & (AccessFs::IoctlDev | AccessFs::Truncate));
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = vec![("/proc".into(), read)];
    rules.extend([&policy.tmp, &policy.home].map(|path| (path.clone(), change)));
    rules.extend(policy.devices.iter().map(|path| (path.clone(), device)));
    match policy.mode {
        SandboxMode::Reduced => {
            rules.push(("/dev".into(), list));
            rules.extend(DEVICES.map(|path| (path.into(), device)));
            let mut open = |path: &Path, hidden: &[PathBuf], rights| {
                around_hidden(path, hidden, &mut |path, access| {
                    rules.push((
                        path,
                        if access == Opened::Whole {
                            rights
                        } else {
                            list
                        },
                    ));
                });
            };
            let not_writable = [policy.hide.as_slice(), &policy.read].concat();
            for path in &policy.read {
                open(path, &policy.hide, read);
            }
            for path in &policy.write {
                open(path, &not_writable, change);
            }
        }
        // The mount namespace contains nothing else, and `/` has to be listed.
        SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
            rules.extend([("/".into(), list), ("/dev".into(), device)]);
            rules.extend(policy.write.iter().map(|path| (path.clone(), change)));
            rules.extend(["/dev/shm", "/run"].map(|path| (path.into(), change)));
            rules.extend(policy.read.iter().map(|path| (path.clone(), read)));
        }
    }
    rules
}

/// How much of a path `around_hidden` opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opened {
    Whole,
    /// Only the list of its names.
    List,
}

/// Opens a path around what is hidden below it. Landlock rules only add rights, so a directory that contains something
/// hidden can be listed, and its other entries are opened one by one.
fn around_hidden(path: &Path, hidden: &[PathBuf], open: &mut dyn FnMut(PathBuf, Opened)) {
    if hidden.iter().any(|entry| path == entry) {
        return;
    }
    if !hidden.iter().any(|entry| entry.starts_with(path)) {
        return open(path.to_owned(), Opened::Whole);
    }
    open(path.to_owned(), Opened::List);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A symlink needs no rule: access is decided by the rules of its target.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            around_hidden(&entry.path(), hidden, open);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::{Opened, around_hidden};

    /// Creates files in a directory and returns what is opened of it around hidden paths, sorted: a whole path as it is,
    /// one that can only be listed with a `/` at its end.
    fn opened(files: &[&str], links: &[(&str, &str)], hidden: &[&str]) -> Vec<String> {
        let top = tempfile::tempdir().unwrap();
        for file in files {
            let path = top.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        for (link, target) in links {
            symlink(target, top.path().join(link)).unwrap();
        }
        let hidden: Vec<_> = hidden.iter().map(|path| top.path().join(path)).collect();
        let mut all = Vec::new();
        around_hidden(top.path(), &hidden, &mut |path, access| {
            let path = path.strip_prefix(top.path()).unwrap().display().to_string();
            all.push(path + if access == Opened::List { "/" } else { "" });
        });
        all.sort();
        all
    }

    #[test]
    fn a_directory_without_hidden_entries_is_opened_whole() {
        assert_eq!(opened(&["bin/cargo", "env"], &[], &[]), [""]);
    }

    #[test]
    fn the_siblings_of_a_hidden_file_are_opened_one_by_one() {
        let files = ["bin/cargo", "credentials", "env"];
        assert_eq!(opened(&files, &[], &["credentials"]), ["/", "bin", "env"]);
    }

    #[test]
    fn a_hidden_root_in_a_readable_directory_stays_closed_with_its_workspace() {
        let files = ["src/p/state.json", "src/p/workspace/x", "src/q", "pkg/m"];
        assert_eq!(
            opened(&files, &[], &["src/p"]),
            ["/", "pkg", "src/", "src/q"]
        );
    }

    #[test]
    fn symlinks_are_not_opened() {
        let links = [("to-secret", "secret"), ("to-bin", "bin")];
        let all = opened(&["bin/x", "secret"], &links, &["secret"]);
        assert_eq!(all, ["/", "bin"]);
    }

    #[test]
    fn a_hidden_directory_opens_nothing() {
        assert!(opened(&["x"], &[], &[""]).is_empty());
    }
}
