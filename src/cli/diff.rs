//! `diff`: what differs between two snapshots, or a snapshot and the workspace, as a patch that `git apply` takes. Takes no
//! lock, changes nothing.

use std::borrow::Cow;
use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};

use rustix::termios::tcgetwinsize;

use crate::cancel::CancelToken;
use crate::cli::arguments::DiffArguments;
use crate::cli::decision::open_workspace;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::output::{print_stderr, write_stdout_bytes};
use crate::cli::restore::find_attempt;
use crate::cli::run_names::find_run;
use crate::diff::{
    FileDiff, FileStat, FileVersion, VersionKind, file_stat, git_patch, stat_table, terminal_text,
};
use crate::error::{Error, Result};
use crate::snapshots::objects::IdsOnly;
use crate::snapshots::objects::{ObjectId, ObjectStore};
use crate::snapshots::records::RunSnapshots;
use crate::snapshots::take::SnapshotIndex;
use crate::snapshots::tree::{Tree, TreeNode, changed_paths, read_tree};
use crate::state::store::{LoadedState, Root};
use crate::workspace::{OpenedFile, Workspace};

/// The number that means what was taken in.
const TAKEN_IN: u32 = 0;
/// The width of a table that does not go to a terminal.
const TABLE_WIDTH: usize = 80;

/// One side of a comparison.
struct DiffSide {
    tree: Tree,
    /// Where contents are read; `None` is the store.
    workspace: Option<Workspace>,
}

/// Prints the difference and returns the exit code's error, if there is one.
pub(super) fn main(env: &CliEnv, arguments: &DiffArguments) -> Result<()> {
    let root = Root::open(&env.root)?;
    let run_id = find_run(&root, arguments.run.as_deref())?;
    let cancel = cancel_on_signals()?;
    let store = ObjectStore::open_existing(&root)?
        .ok_or_else(|| Error::Usage(format!("no snapshots of run {run_id} are kept")))?;
    let run = DiffRun {
        root: &root,
        run_id: &run_id,
        store: &store,
        cancel: &cancel,
    };
    let old = run.snapshot(arguments.old.unwrap_or(TAKEN_IN))?;
    let new = match arguments.new {
        Some(number) => run.snapshot(number)?,
        None => run.newest(arguments.old.is_none())?,
    };
    let changes = Changes::new(&store, &old, &new)?;
    if let Some(line) = changes.left_out_line() {
        print_stderr(&line);
    }
    match arguments.stat {
        true => write_stdout_bytes(changes.stat()?.as_bytes()),
        false => show(env, &changes.patch()?),
    }
}

/// The run whose snapshots are compared.
struct DiffRun<'a> {
    root: &'a Root,
    run_id: &'a str,
    store: &'a ObjectStore,
    cancel: &'a CancelToken,
}

impl DiffRun<'_> {
    fn snapshot(&self, number: u32) -> Result<DiffSide> {
        let tree = match number {
            TAKEN_IN => self.taken_in()?,
            number => find_attempt(self.root, self.run_id, number)?.tree,
        };
        Ok(DiffSide {
            tree: read_tree(self.store, tree)?,
            workspace: None,
        })
    }

    fn taken_in(&self) -> Result<ObjectId> {
        let taken_in = RunSnapshots::of(self.root, self.run_id).taken_in()?;
        taken_in.map(|taken_in| taken_in.tree).ok_or_else(|| {
            Error::Usage(format!(
                "what run {} took in is not kept\nhelp: name two attempts: `orchestrator diff 1 2`",
                self.run_id
            ))
        })
    }

    /// The workspace; of an older run, whose workspace is gone, its last snapshot, if no attempt is named.
    fn newest(&self, is_whole_run: bool) -> Result<DiffSide> {
        let is_current = match self.root.load()? {
            LoadedState::Build(state) => state.run_id == self.run_id,
            _ => false,
        };
        let last = RunSnapshots::of(self.root, self.run_id).list()?;
        if let Some(last) = last
            .values()
            .next_back()
            .filter(|_| is_whole_run && !is_current)
        {
            return self.snapshot(last.number);
        }
        let workspace = open_workspace(self.root)?;
        let mut index = SnapshotIndex::default();
        if let Some(workspace) = &workspace {
            index.take(workspace, &mut IdsOnly, self.cancel)?;
        }
        Ok(DiffSide {
            tree: index.tree(),
            workspace,
        })
    }
}

impl DiffSide {
    /// The version of a file on this side; `None` if it has none.
    fn version(&self, store: &ObjectStore, path: &Path) -> Result<Option<FileVersion<'static>>> {
        let (kind, id) = match self.tree.get(path) {
            Some(TreeNode::File { mode, id, .. }) if mode & 0o100 != 0 => {
                (VersionKind::Executable, *id)
            }
            Some(TreeNode::File { id, .. }) => (VersionKind::Regular, *id),
            Some(TreeNode::Link { id }) => (VersionKind::Link, *id),
            Some(TreeNode::Folder { .. } | TreeNode::Unstored { .. }) | None => return Ok(None),
        };
        let content = match &self.workspace {
            None => store.read(id)?,
            Some(workspace) => read_now(workspace, path, kind)?,
        };
        Ok(Some(FileVersion {
            kind,
            content: Cow::Owned(content),
        }))
    }

    fn is_unstored(&self, path: &Path) -> bool {
        matches!(self.tree.get(path), Some(TreeNode::Unstored { .. }))
    }
}

fn read_now(workspace: &Workspace, path: &Path, kind: VersionKind) -> Result<Vec<u8>> {
    if kind == VersionKind::Link {
        return workspace.link_target(path);
    }
    let mut content = Vec::new();
    if let OpenedFile::Opened(mut file) = workspace.open_any_file(path)? {
        file.read_to_end(&mut content)
            .map_err(|error| Error::io("read", &workspace.path_of(path), error))?;
    }
    Ok(content)
}

/// What differs between two sides.
struct Changes<'a> {
    store: &'a ObjectStore,
    sides: (&'a DiffSide, &'a DiffSide),
    paths: Vec<&'a Path>,
    /// What cannot be shown.
    left_out: Vec<&'a Path>,
}

impl<'a> Changes<'a> {
    fn new(store: &'a ObjectStore, old: &'a DiffSide, new: &'a DiffSide) -> Result<Changes<'a>> {
        // A repository inside is not part of a patch.
        let is_left_out = |path: &&Path| {
            old.is_unstored(path) || new.is_unstored(path) || path.iter().any(|name| name == ".git")
        };
        let changed = changed_paths(&old.tree, &new.tree);
        let (left_out, paths) = changed.into_iter().partition(is_left_out);
        Ok(Changes {
            store,
            sides: (old, new),
            paths,
            left_out,
        })
    }

    /// Calls `visit` with the two versions of each file.
    fn each(&self, mut visit: impl FnMut(&FileDiff<'_>)) -> Result<()> {
        for path in &self.paths {
            visit(&FileDiff {
                path,
                old: self.sides.0.version(self.store, path)?,
                new: self.sides.1.version(self.store, path)?,
            });
        }
        Ok(())
    }

    fn patch(&self) -> Result<Vec<u8>> {
        let mut patch = Vec::new();
        self.each(|diff| patch.extend(git_patch(diff)))?;
        Ok(patch)
    }

    fn stat(&self) -> Result<String> {
        let mut files: Vec<(PathBuf, FileStat)> = Vec::new();
        self.each(|diff| {
            // Permissions that git does not know make no difference.
            if !git_patch(diff).is_empty() {
                files.push((diff.path.to_owned(), file_stat(diff)));
            }
        })?;
        let width = tcgetwinsize(std::io::stdout()).map_or(TABLE_WIDTH, |size| size.ws_col.into());
        Ok(stat_table(&files, width))
    }

    fn left_out_line(&self) -> Option<String> {
        if self.left_out.is_empty() {
            return None;
        }
        let names = self.left_out.iter().map(|path| path.to_string_lossy());
        let names: Vec<String> = names.map(|name| name.escape_debug().to_string()).collect();
        Some(format!(
            "not in the diff, since snapshots do not store it: {}",
            names.join(", ")
        ))
    }
}

/// Prints a patch: as it is, or at a terminal coloured and through the user's pager.
fn show(env: &CliEnv, patch: &[u8]) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let has_color = env.has_color(is_terminal);
    if patch.is_empty() || (!is_terminal && !has_color) {
        return write_stdout_bytes(patch);
    }
    let text = terminal_text(patch, has_color);
    if !is_terminal {
        return write_stdout_bytes(text.as_bytes());
    }
    match env.pager().filter(|_| !env.has_dumb_terminal()) {
        Some(pager) if pager.show(text.as_bytes()).is_ok() => Ok(()),
        _ => write_stdout_bytes(text.as_bytes()),
    }
}
