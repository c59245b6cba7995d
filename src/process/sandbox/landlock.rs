//! Landlock: every right that this kernel knows, granted where the walls say so, fully enforced or not at all.
//!
//! Which rights the kernel knows is asked by trying them as hard requirements; nothing is ever left out in silence.

use std::fs;
use std::path::{Path, PathBuf};

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};

use crate::process::sandbox::{SandboxFailure, SandboxLayer, SandboxMode, SandboxPolicy};

/// Versions that brought a right, newest first.
const VERSIONS: [ABI; 7] = [
    ABI::V9,
    ABI::V6,
    ABI::V5,
    ABI::V4,
    ABI::V3,
    ABI::V2,
    ABI::V1,
];
/// Devices that a child has in reduced mode, where `/dev` is the host's. Terminals are not among them: those of the user
/// are in the same folder as new ones, and whoever can open them reads what is typed. Who cannot do without has them as
/// further devices.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Returns the newest version with a right that both this kernel and we know.
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

/// Restricts this process; returns whether sockets and signals of others are out of its reach.
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
            "Landlock here is of version {}; 3 is needed",
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
    // With namespaces the loopback is one's own, and a rule would name each of its ports.
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
    let read = AccessFs::from_read(version);
    let change = AccessFs::from_all(version) & !(AccessFs::MakeChar | AccessFs::MakeBlock);
    let list: BitFlags<AccessFs> = AccessFs::ReadDir.into();
    let device = (AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::ReadDir)
        | (AccessFs::from_all(version) & (AccessFs::IoctlDev | AccessFs::Truncate));
    let mut rules: Vec<(PathBuf, BitFlags<AccessFs>)> = vec![("/proc".into(), read)];
    rules.extend(
        policy
            .write
            .iter()
            .chain([&policy.tmp, &policy.home])
            .map(|path| (path.clone(), change)),
    );
    rules.extend(policy.devices.iter().map(|path| (path.clone(), device)));
    match policy.mode {
        SandboxMode::Reduced => {
            rules.push(("/dev".into(), list));
            rules.extend(DEVICES.map(|path| (path.into(), device)));
            for path in &policy.read {
                around_hidden(path, &policy.hide, &mut |path, is_whole| {
                    rules.push((path, if is_whole { read } else { list }));
                });
            }
        }
        // Nothing is in this tree that may not be seen, and `/` has to be listed.
        SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
            rules.extend([("/".into(), list), ("/dev".into(), device)]);
            rules.extend(["/dev/shm", "/run"].map(|path| (path.into(), change)));
            rules.extend(policy.read.iter().map(|path| (path.clone(), read)));
        }
    }
    for (path, rights) in rules {
        // What has vanished meanwhile needs no rule.
        let Ok(place) = PathFd::new(&path) else {
            continue;
        };
        let rights = if path.is_dir() {
            rights
        } else {
            rights & AccessFs::from_file(version)
        };
        ruleset = ruleset.add_rule(PathBeneath::new(place, rights))?;
    }
    Ok(ruleset)
}

/// Names what can be opened as a whole below a path; where something in a folder is hidden, the folder can be listed
/// and what else is in it is named one by one.
fn around_hidden(path: &Path, hidden: &[PathBuf], name: &mut dyn FnMut(PathBuf, bool)) {
    if hidden.iter().any(|place| path == place) {
        return;
    }
    if !hidden.iter().any(|place| place.starts_with(path)) {
        return name(path.to_owned(), true);
    }
    name(path.to_owned(), false);
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        // A link opens nothing by itself; where it leads is listed or not.
        if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
            around_hidden(&entry.path(), hidden, name);
        }
    }
}
