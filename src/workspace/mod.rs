//! Generated files: the only code that resolves, reads, replaces and removes them.
//!
//! A path is followed from an open directory one name at a time, so nothing that is swapped meanwhile leads out.
//! `Workspace` (`handle.rs`) is `workspace/` of a run; `ProjectDir` (`project.rs`) is the directory that the editor works
//! in; `CarryFolder` (`carry.rs`) is a folder of the user's that `apply` writes to. All resolve through `resolve.rs`,
//! write through `stage.rs` and call the kernel through `entry.rs`. What belongs into the workspace is decided elsewhere.
//!
//! # Rules
//!
//! One value of `CallerRules` per caller (`rules.rs`) holds what differs on purpose. "Inputs" are the files that the user
//! gives (`inputs.rs`: copied, protected, put back); a snapshot is taken and compared by the third column and restored by
//! the second.
//!
//! | | answers | inputs (protection) | snapshots | editor | apply |
//! |---|---|---|---|---|---|
//! | link inside, on the way | followed | replaced by a folder | recorded, not followed | followed | conflict |
//! | link inside, last name | replaced by the file | replaced | recorded | followed; the link stays | replaced if it is as it was copied, else conflict |
//! | link that leads out | violation | replaced | recorded | refused | conflict; never made |
//! | absolute link | violation | replaced | recorded | followed into the project, else refused | conflict; never made |
//! | dangling link | its folders are made | replaced | recorded | `create` makes its target, else not found | like any link |
//! | mount | violation, not entered | violation, not entered | not entered, stays | read, never written | conflict |
//! | pipe, socket, device | violation; may be deleted | replaced | kept; new ones are removed | refused, never opened | conflict |
//! | frozen path | decided by the caller | it is what is written | restored like any | read, not written | not carried |
//! | hidden path | does not occur | does not occur | does not occur | absent, and cannot be created | does not occur |
//! | other hard links | keep their content | keep their content | keep their content | keep their content | keep their content |
//! | mode of a replaced file | kept, owner may read and write | as given | as recorded | kept | kept, but for the executable bit |
//! | set-id and sticky bits | dropped | dropped | dropped | dropped | dropped |
//! | mode of a new file | umask; `#!` is executable | as given | as recorded | umask; `#!` is executable | 0644 or 0755, less the umask |
//! | owner of a replaced file | this user | this user | this user | kept where the system allows it | kept where the system allows it |
//! | missing permission | own entries are opened up | opened up | opened up | refused | refused, all is undone |
//! | missing folders | made | made | made | made by `create`, else not found | made |
//! | folder where a file goes | refused | removed | removed | refused | conflict, unless all in it is deleted |
//! | file changed meanwhile | replaced | replaced | replaced | refused | conflict |
//! | depth | 256 | 256 | 256 | 256 | 256 |
//! | links followed | 40 | 0 | 0 | 40 | 0 |

mod answers;
mod carry;
mod entry;
pub(crate) mod generated;
mod handle;
pub(crate) mod hidden;
mod inputs;
mod path_error;
mod placement;
mod project;
mod recorded_walk;
mod remove;
mod resolve;
mod rules;
pub(crate) mod safe_path;
pub(crate) mod snapshot;
mod stage;
mod sync;
#[cfg(test)]
pub(crate) mod tests;
mod walk;

pub(crate) use self::answers::{ChangeRefusal, FileChange};
pub(crate) use self::carry::{CarriedContent, CarriedEntry, CarryFolder};
pub(crate) use self::entry::EntryMeta;
pub(crate) use self::entry::FileTime;
pub(crate) use self::handle::{OpenedFile, ReadOutcome, Workspace, now_of_files};
pub(crate) use self::path_error::PathError;
pub(crate) use self::placement::InputPlacement;
pub(crate) use self::project::FrozenPaths;
pub(crate) use self::project::{
    FolderEntry, MAX_FILE_SIZE, ProjectDir, ProjectFolder, ProjectPath, ProjectTarget,
};
pub(crate) use self::recorded_walk::{RecordStep, RecordedWalk, WalkCursor};
pub(crate) use self::walk::{EntryKind, WalkEnd, WalkStep, WorkspaceEntry};
