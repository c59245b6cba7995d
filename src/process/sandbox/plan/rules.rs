//! Reduces what may be written, read and never seen to entries that each change something.

use std::path::PathBuf;

use crate::process::sandbox::policy::{PathAccess, SandboxPolicy, reach};
use crate::process::sandbox::trace::PathResolver;

/// Returns the sorted entries of `read` and `hide` that have an effect. A path in both is hidden.
pub(super) fn settle(
    resolver: &PathResolver,
    write: &[PathBuf],
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut wanted: Vec<(PathBuf, PathAccess)> = hide
        .into_iter()
        .map(|path| (path, PathAccess::Nothing))
        .collect();
    wanted.extend(read.into_iter().map(|path| (path, PathAccess::Read)));
    // Parents sort before their children; the sort is stable, so a hidden path comes before the same readable path.
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    wanted.dedup_by(|later, earlier| later.0 == earlier.0);
    let (mut kept_read, mut kept_hide) = (Vec::new(), Vec::new());
    for (path, access) in wanted {
        let before = reach(&path, write, &kept_read, &kept_hide);
        match access {
            // A writable path is readable already, and an entry of `read` must not make it read-only.
            PathAccess::Read if before == PathAccess::Nothing => kept_read.push(path),
            PathAccess::Nothing if before != PathAccess::Nothing && resolver.is_there(&path) => {
                kept_hide.push(path)
            }
            _ => {}
        }
    }
    kept_hide.retain(|path| !write.contains(path));
    (kept_read, kept_hide)
}

/// Returns the links that have to be created: they lead to something visible and lie where nothing is.
pub(super) fn needed_links(
    resolver: &PathResolver,
    policy: &SandboxPolicy,
    links: Vec<(PathBuf, PathBuf)>,
) -> Vec<(PathBuf, PathBuf)> {
    let is_needed = |(link, _): &(PathBuf, PathBuf)| {
        let leads = resolver
            .trace(link)
            .is_some_and(|target| policy.shows(&target.real));
        leads && policy.reach(link) == PathAccess::Nothing && !policy.hide.contains(link)
    };
    let mut needed: Vec<_> = links.into_iter().filter(is_needed).collect();
    needed.sort();
    needed.dedup();
    needed
}
