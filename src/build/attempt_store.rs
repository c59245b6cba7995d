//! Keeps the workspace of a run: what was taken in, and a snapshot after each round of checks.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::build::checks::ToolResult;
use crate::build::context::Context;
use crate::build::kept_files::KEPT_NAMES;
use crate::build::spec::InputSource;
use crate::build::spec::inputs::{WorkspaceInput, outermost};
use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::events::{Event, KeptRound, MAIN_AGENT, TestTotals};
use crate::snapshots::objects::{IdsOnly, ObjectId, ObjectStore, UnplacedObjects};
use crate::snapshots::prune::prune;
use crate::snapshots::records::{CopiedSource, RoundResult, RunSnapshots, SnapshotRecord, TakenIn};
use crate::snapshots::restore::{CurrentTree, restore};
use crate::snapshots::take::{SnapshotIndex, TakenSnapshot, UnstoredEntry};
use crate::snapshots::tree::{Tree, TreeNode, changed_paths, read_tree, write_tree};
use crate::state::phase::Phase;
use crate::state::run::{UsageTotals, timestamp};
use crate::state::store::{Root, real_path};
use crate::workspace::snapshot::Snapshot;
use crate::workspace::{RecordedWalk, Workspace, WorkspaceEntry};

/// The snapshots of a run under way.
#[derive(Debug)]
pub(crate) struct AttemptStore {
    store: ObjectStore,
    index: SnapshotIndex,
    /// What `stash` found; the other index must stay that of the last snapshot.
    stash_index: SnapshotIndex,
    records: RunSnapshots,
    last: Option<SnapshotRecord>,
    /// What the attempts so far have used.
    used: UsageTotals,
    /// When the attempt under way began, in this process.
    begun: Instant,
}

impl AttemptStore {
    pub(crate) fn open(root: &Root, run_id: &str) -> Result<AttemptStore> {
        let (store, records) = (ObjectStore::open(root)?, RunSnapshots::of(root, run_id));
        let list = records.list()?;
        let mut used = UsageTotals::none(true);
        for round in list.values().filter_map(|record| record.round.as_ref()) {
            used = sum(&used, &round.usage);
        }
        let last = list.into_values().next_back();
        let tree = match &last {
            Some(last) => Some(last.tree),
            None => records
                .start()?
                .or(records.taken_in()?.map(|taken_in| taken_in.tree)),
        };
        // Without the objects of an earlier snapshot everything counts as changed.
        let known = tree.and_then(|tree| read_tree(&store, tree).ok());
        let index = known.map(SnapshotIndex::of_tree).unwrap_or_default();
        Ok(AttemptStore {
            store,
            index,
            stash_index: SnapshotIndex::default(),
            records,
            last,
            used,
            begun: Instant::now(),
        })
    }

    pub(crate) fn records(&self) -> &RunSnapshots {
        &self.records
    }

    /// Stores the workspace durably; what it differs in is relative to the last snapshot.
    pub(crate) fn take(
        &mut self,
        workspace: &Workspace,
        cancel: &CancelToken,
    ) -> Result<TakenSnapshot> {
        let mut staged = self.store.stage();
        let taken = self.index.take(workspace, &mut staged, cancel)?;
        staged.finish()?;
        Ok(taken)
    }

    /// Writes the workspace to the store; the returned work makes it durable.
    fn take_unplaced(
        &mut self,
        workspace: &Workspace,
        cancel: &CancelToken,
    ) -> Result<(TakenSnapshot, Option<UnplacedObjects>)> {
        let mut staged = self.store.stage();
        let taken = self.index.take(workspace, &mut staged, cancel)?;
        Ok((taken, staged.detach()))
    }

    /// Writes what a walk over the workspace has found to the store; the returned work makes it durable.
    fn take_walked(
        &mut self,
        workspace: &Workspace,
        walk: &RecordedWalk,
        cancel: &CancelToken,
    ) -> Result<(TakenSnapshot, Option<UnplacedObjects>)> {
        let mut staged = self.store.stage();
        let taken = self
            .index
            .take_walked(workspace, walk, &mut staged, cancel)?;
        Ok((taken, staged.detach()))
    }

    /// Stores the workspace durably, so that `undo` can bring it back. It does not become a snapshot.
    pub(crate) fn stash(
        &mut self,
        workspace: &Workspace,
        cancel: &CancelToken,
    ) -> Result<ObjectId> {
        let mut staged = self.store.stage();
        let taken = self.stash_index.take(workspace, &mut staged, cancel)?;
        staged.finish()?;
        Ok(taken.tree)
    }

    /// Remembers the workspace, to be put back by `put_back`; what the last snapshot or `stash` stored is not copied.
    pub(crate) fn remember(&self, workspace: &Workspace, root: &Root) -> Result<Snapshot> {
        Snapshot::take(workspace, &root.path, &|entry| {
            self.stored_id(entry).is_some()
        })
    }

    /// Puts the workspace back as it was. No snapshot may be taken between.
    pub(crate) fn put_back(&self, snapshot: Snapshot, workspace: &Workspace) -> Result<()> {
        snapshot.restore(workspace, &|entry| match self.stored_id(entry) {
            Some(id) => self.store.read(id),
            None => Err(Error::Bug(format!(
                "{} is not stored",
                entry.path.display()
            ))),
        })
    }

    fn stored_id(&self, entry: &WorkspaceEntry) -> Option<ObjectId> {
        let stashed = self.stash_index.stored_id(entry);
        stashed.or_else(|| self.index.stored_id(entry))
    }

    /// Brings back what `stash` stored, also in another process. Returns what differed. Nothing happens if it is not
    /// stored any more.
    pub(crate) fn undo(
        &self,
        workspace: &Workspace,
        tree: ObjectId,
        cancel: &CancelToken,
    ) -> Result<Vec<PathBuf>> {
        if !self.has_tree(tree) {
            return Ok(Vec::new());
        }
        let wanted = read_tree(&self.store, tree)?;
        let (now, taken) = current_tree(workspace, cancel)?;
        let changed = changed_paths(&now, &wanted).into_iter();
        let changed = changed.map(Path::to_owned).collect();
        let now = CurrentTree::new(now, &taken);
        restore(workspace, &self.store, &wanted, &now, &KEPT_NAMES)?;
        Ok(changed)
    }

    /// Makes the workspace equal to a stored tree.
    pub(crate) fn bring_back(
        &mut self,
        workspace: &Workspace,
        tree: ObjectId,
        cancel: &CancelToken,
    ) -> Result<Vec<PathBuf>> {
        let wanted = read_tree(&self.store, tree)?;
        let (now, taken) = current_tree(workspace, cancel)?;
        let now = CurrentTree::new(now, &taken);
        let missing = restore(workspace, &self.store, &wanted, &now, &KEPT_NAMES)?;
        self.index = SnapshotIndex::of_tree(wanted);
        Ok(missing)
    }

    /// Whether the last snapshot has a file with this content; `hash` is the beginning of its SHA-256.
    pub(crate) fn has_content(&self, path: &str, hash: Option<&String>) -> bool {
        let id = self.content_id(Path::new(path));
        id.zip(hash)
            .is_some_and(|(id, hash)| id.to_string().starts_with(hash.as_str()))
    }

    /// The id of a file's content in the last snapshot, if that is stored.
    pub(crate) fn content_id(&self, path: &Path) -> Option<ObjectId> {
        match self.index.get(path) {
            Some(TreeNode::File { id, .. }) => Some(*id),
            _ => None,
        }
    }

    pub(crate) fn has(&self, path: &str) -> bool {
        self.has_path(Path::new(path))
    }

    pub(crate) fn has_path(&self, path: &Path) -> bool {
        self.index.get(path).is_some()
    }

    /// Whether the tree with this id is stored.
    pub(crate) fn has_tree(&self, tree: ObjectId) -> bool {
        self.store.contains(tree)
    }

    /// What another run took in; nothing if that is not known.
    pub(crate) fn taken_in_tree(&self, run: &RunSnapshots) -> Tree {
        let taken_in = run.taken_in().ok().flatten();
        let tree = taken_in.and_then(|taken_in| read_tree(&self.store, taken_in.tree).ok());
        tree.unwrap_or_default()
    }

    /// Adds inputs that were copied in later to what the run took in.
    pub(crate) fn add_taken_in(
        &mut self,
        workspace: &Workspace,
        new: &[WorkspaceInput],
        cancel: &CancelToken,
    ) -> Result<()> {
        self.take(workspace, cancel)?;
        let Some(mut taken_in) = self.records.taken_in()?.filter(|_| !new.is_empty()) else {
            return Ok(());
        };
        let mut tree = read_tree(&self.store, taken_in.tree)?;
        for path in new
            .iter()
            .flat_map(|input| Path::new(input.to.as_str()).ancestors())
        {
            if let Some(node) = self.index.get(path) {
                tree.entry(path.to_owned()).or_insert(*node);
            }
        }
        let mut staged = self.store.stage();
        taken_in.tree = write_tree(&tree, &mut staged)?;
        staged.finish()?;
        self.records.stage_taken_in(&taken_in)?.place()
    }

    /// Removes the oldest snapshots of the root beyond `keep`.
    pub(crate) fn prune(&mut self, root: &Root, run_id: &str, keep: u32) -> Result<()> {
        prune(root, &mut self.store, run_id, keep as usize).map(drop)
    }

    /// The record of a round. One that is repeated on the same files, after a resume, takes the place of the first.
    fn record(&self, taken: &TakenSnapshot, phase: Phase, round: RoundResult) -> SnapshotRecord {
        let is_repeated = |last: &&SnapshotRecord| {
            let earlier = last.round.as_ref();
            last.tree == taken.tree
                && earlier.is_some_and(|earlier| earlier.retry_count == round.retry_count)
        };
        let repeated = self.last.as_ref().filter(is_repeated);
        let next = self.last.as_ref().map_or(1, |last| last.number + 1);
        let files = || {
            taken
                .changed
                .iter()
                .map(|path| path.to_string_lossy().into_owned())
        };
        SnapshotRecord {
            number: repeated.map_or(next, |last| last.number),
            time: timestamp(),
            tree: taken.tree,
            phase: phase.name().into(),
            files: repeated.map_or_else(|| files().collect(), |last| last.files.clone()),
            unstored: taken.unstored.clone(),
            round: Some(RoundResult {
                usage: match repeated.and_then(|last| last.round.as_ref()) {
                    Some(earlier) => sum(&earlier.usage, &round.usage),
                    None => round.usage,
                },
                ..round
            }),
            kept: None,
        }
    }
}

/// What is in the workspace now. It is not stored: it may have hidden files.
fn current_tree(workspace: &Workspace, cancel: &CancelToken) -> Result<(Tree, TakenSnapshot)> {
    let mut index = SnapshotIndex::default();
    let taken = index.take(workspace, &mut IdsOnly, cancel)?;
    Ok((index.tree(), taken))
}

/// Keeps what the user's files are in the workspace, before anything changes them. It becomes durable in the background.
pub(crate) fn keep_taken_in(context: &mut Context) -> Result<()> {
    let attempts = &mut context.attempts;
    let (taken, objects) = attempts.take_unplaced(&context.workspace, &context.cancel)?;
    say_unstored(context, &[], &taken.unstored)?;
    let taken_in = taken_in(context, taken.tree);
    let records = context.attempts.records.clone();
    context.saves.begin(move || {
        let record = records.stage_taken_in(&taken_in)?;
        objects.map_or(Ok(()), UnplacedObjects::place)?;
        record.place()
    })
}

/// What the spec takes in, with the tree that it made.
pub(crate) fn taken_in(context: &Context, tree: ObjectId) -> TakenIn {
    let root = real_path(&context.root.path);
    let protect = context.inputs.protect.iter();
    TakenIn {
        tree,
        copied: context
            .spec
            .copy
            .iter()
            .map(|source| copied(source, &root))
            .collect(),
        protected: outermost(protect)
            .map(|input| input.to.to_string())
            .collect(),
    }
}

fn copied(source: &InputSource, root: &Path) -> CopiedSource {
    let from = real_path(&source.from);
    CopiedSource {
        is_folder: from.is_dir(),
        exclude: source.exclude.clone(),
        to: source
            .to
            .as_ref()
            .map(ToString::to_string)
            .unwrap_or_default(),
        from: match from.strip_prefix(root) {
            Ok(inside) => inside.to_owned(),
            Err(_) => from,
        },
    }
}

/// Keeps the workspace after a round of checks, as a walk has found it. `failure` is a digest of what failed.
pub(crate) fn keep_round(
    context: &mut Context,
    results: &[&ToolResult],
    cause: Option<String>,
    failure: Option<String>,
    walk: &RecordedWalk,
) -> Result<()> {
    let (taken, objects) =
        context
            .attempts
            .take_walked(&context.workspace, walk, &context.cancel)?;
    let (retry_count, price_is_known) = (context.state.retry_count, context.price_is_known);
    let phase = if retry_count == 0 {
        Phase::Generating
    } else {
        Phase::Patching
    };
    let total = context.log.read(|log| log.usage().totals(price_is_known));
    let attempts = &mut context.attempts;
    let round = RoundResult {
        retry_count,
        tests: TestTotals::sum(results.iter().filter_map(|result| result.tests.as_ref())),
        failed_checks: results.iter().filter(|result| !result.passed()).count() as u32,
        cause,
        usage: difference(&total, &attempts.used),
        duration_ms: attempts.begun.elapsed().as_millis() as u64,
    };
    let kept = KeptRound {
        retry_count,
        tests: round.tests.clone(),
        failed_checks: round.failed_checks,
        failure,
    };
    let record = attempts.record(&taken, phase, round);
    let staged = attempts.records.stage(&record)?;
    objects.map_or(Ok(()), UnplacedObjects::place)?;
    staged.place()?;
    attempts.used = total;
    attempts.begun = Instant::now();
    let before = attempts.last.replace(record.clone());
    let before = before.map(|before| before.unstored).unwrap_or_default();
    say_unstored(context, &before, &record.unstored)?;
    context.log.record(snapshot_event(&record, Some(kept)))
}

/// The event of a snapshot.
pub(crate) fn snapshot_event(record: &SnapshotRecord, round: Option<KeptRound>) -> Event {
    Event::SnapshotKept {
        agent_id: MAIN_AGENT.into(),
        number: record.number,
        tree: record.tree.to_string(),
        files: record.files.clone(),
        unstored: record
            .unstored
            .iter()
            .map(|entry| entry.path.clone())
            .collect(),
        kept: record.kept.clone(),
        round,
    }
}

/// Says what snapshots name and do not store, unless it was so before. The folders of tools can be made again; a file is
/// worth a note.
fn say_unstored(
    context: &mut Context,
    before: &[UnstoredEntry],
    now: &[UnstoredEntry],
) -> Result<()> {
    let is_new = |entry: &&UnstoredEntry| {
        entry.is_noteworthy() && !before.iter().any(|known| known.path == entry.path)
    };
    let new: Vec<&UnstoredEntry> = now.iter().filter(is_new).collect();
    if new.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = new.iter().map(|entry| entry.shown()).collect();
    let text = format!("not stored in snapshots, only named: {}", names.join(", "));
    match new.iter().all(|entry| entry.is_folder) {
        true => context.log.progress(text),
        false => context.log.note(text),
    }
}

fn sum(one: &UsageTotals, other: &UsageTotals) -> UsageTotals {
    let mut sum = *one;
    sum.add(
        other.llm_calls,
        other.input_tokens,
        other.output_tokens,
        other.cost_usd,
    );
    sum.lost_usd = one
        .lost_usd
        .zip(other.lost_usd)
        .map(|(one, other)| one + other);
    sum
}

fn difference(total: &UsageTotals, before: &UsageTotals) -> UsageTotals {
    let cost = |total: Option<f64>, before: Option<f64>| {
        let (total, before) = total.zip(before)?;
        Some((total - before).max(0.0))
    };
    UsageTotals {
        llm_calls: total.llm_calls.saturating_sub(before.llm_calls),
        input_tokens: total.input_tokens.saturating_sub(before.input_tokens),
        output_tokens: total.output_tokens.saturating_sub(before.output_tokens),
        cost_usd: cost(total.cost_usd, before.cost_usd),
        lost_usd: cost(total.lost_usd, before.lost_usd),
    }
}
