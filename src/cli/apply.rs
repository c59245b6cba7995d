//! `apply`: carries the changes of the workspace back to where `copy` took them from.
//!
//! An interrupted one is completed first. With `--check` nothing is written.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use crate::apply::carry_out::{self, ApplyEnd};
use crate::apply::changes::{AppliedWorkspace, ApplyFindings, find_changes};
use crate::apply::plan::ApplyPlan;
use crate::apply::routes::Routes;
use crate::build::spec::CopyFilter;
use crate::cancel::CancelToken;
use crate::cli::apply_text::{ApplyText, change_count};
use crate::cli::decision::open_workspace;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::log_file::log_file;
use crate::cli::output::{print_error, print_stderr, write_stdout};
use crate::cli::run_config::secrets;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::snapshots::objects::IdsOnly;
use crate::snapshots::objects::ObjectStore;
use crate::snapshots::records::{RunSnapshots, TakenIn};
use crate::snapshots::take::{SnapshotIndex, TakenSnapshot};
use crate::snapshots::tree::read_tree;
use crate::state::journal::Journal;
use crate::state::phase::Phase;
use crate::state::run::RunState;
use crate::state::store::{LOGS, LoadedState, Root, real_path};
use crate::workspace::{EntryKind, WalkStep, Workspace};

/// Runs the command and returns its exit code.
pub(super) fn main(env: &CliEnv, is_check: bool) -> u8 {
    let done = ApplyCommand::open(env, is_check).and_then(|mut command| command.run());
    done.unwrap_or_else(|error| print_error(&error))
}

struct ApplyCommand<'a> {
    env: &'a CliEnv,
    root: Root,
    cancel: CancelToken,
    is_check: bool,
    /// An interrupted one was completed before.
    has_completed: bool,
    text: ApplyText,
}

impl ApplyCommand<'_> {
    fn open(env: &CliEnv, is_check: bool) -> Result<ApplyCommand<'_>> {
        let root = Root::open(&env.root)?;
        root.refuse_links(&["workspace", LOGS])?;
        Ok(ApplyCommand {
            env,
            root,
            cancel: cancel_on_signals()?,
            is_check,
            has_completed: false,
            text: ApplyText::new(&real_path(&env.absolute(Path::new("")))),
        })
    }

    fn run(&mut self) -> Result<u8> {
        let _lock = self.root.lock()?;
        if let Some(plan) = &ApplyPlan::load(&self.root)? {
            let completed = self.complete(plan);
            if !matches!(completed, Ok(0)) {
                print_stderr(GIVE_UP);
            }
            let code = completed?;
            if code != 0 || self.is_check {
                return Ok(code);
            }
            self.has_completed = true;
        }
        match self.root.load()? {
            LoadedState::Build(state) => self.apply(&state),
            LoadedState::Corrupt(problem) => Err(Error::StateCorrupt(format!(
                "{} is corrupt: {problem}",
                self.root.join("state.json").display()
            ))),
            _ if self.has_completed => Ok(0),
            LoadedState::Nothing => Err(Error::Usage(format!(
                "no run in {}: there is nothing to apply",
                self.root.path.display()
            ))),
            LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => Err(Error::Usage(
                "the run in this root is that of a workflow, which works on your files directly: there is nothing to apply"
                    .into(),
            )),
        }
    }

    /// Completes an interrupted apply, or says what there is to complete.
    fn complete(&self, plan: &ApplyPlan) -> Result<u8> {
        let store = ObjectStore::open_existing(&self.root)?
            .ok_or_else(|| Error::Bug("an interrupted apply without its objects".into()))?;
        if !self.is_check {
            print_stderr("an apply was interrupted; it is completed now");
            let end = carry_out::complete(plan, &self.root, &store)?;
            return self.conclude(plan, end);
        }
        let conflicts = carry_out::conflicts(plan, &store)?;
        print_stderr("an apply was interrupted: `orchestrator apply` completes it");
        write_stdout(&self.text.changes(plan))?;
        self.text.print_conflicts(&conflicts);
        Ok(u8::from(!conflicts.is_empty()))
    }

    fn apply(&self, state: &RunState) -> Result<u8> {
        let (findings, store) = self.find(state)?;
        let ApplyFindings {
            plan,
            conflicts,
            skipped,
        } = &findings;
        self.text.print_skipped(skipped);
        if state.phase != Phase::Success {
            print_stderr("note: the checks of this run have not passed");
        }
        if self.is_check || !conflicts.is_empty() {
            if self.is_check {
                let summary = format!("would apply: {}\n", change_count(plan));
                let nothing = plan.changes.is_empty() && conflicts.is_empty();
                let summary = if nothing { NOTHING } else { &summary };
                write_stdout(&(self.text.changes(plan) + summary))?;
            }
            self.text.print_conflicts(conflicts);
            return Ok(u8::from(!conflicts.is_empty()));
        }
        let Some(mut store) = store else {
            return Err(Error::Bug("no store to apply from".into()));
        };
        if plan.changes.is_empty() {
            RunSnapshots::of(&self.root, &state.run_id).save_applied(plan.tree)?;
            write_stdout(if self.has_completed { "" } else { NOTHING })?;
            return Ok(0);
        }
        let end = carry_out::begin(plan, &self.root, &mut store)?;
        self.conclude(plan, end)
    }

    /// What there is to apply; with the store, unless this is a check.
    fn find(&self, state: &RunState) -> Result<(ApplyFindings, Option<ObjectStore>)> {
        let snapshots = RunSnapshots::of(&self.root, &state.run_id);
        let (Some(taken_in), Some(workspace)) =
            (snapshots.taken_in()?, open_workspace(&self.root)?)
        else {
            return Err(Error::Usage(format!(
                "the run {} has not taken in any files yet: there is nothing to apply",
                state.run_id
            )));
        };
        let mut index = SnapshotIndex::default();
        let (store, taken) = self.take(&workspace, &mut index)?;
        let tree_of = |id| read_tree(&store, id);
        let workspace = AppliedWorkspace {
            run_id: state.run_id.clone(),
            tree: taken.tree,
            taken_in: tree_of(taken_in.tree)?,
            applied: snapshots.applied()?.map(tree_of).transpose()?,
            now: index.tree(),
            links: links(&workspace, &taken)?,
            protected: taken_in.protected.iter().map(PathBuf::from).collect(),
            unstored: taken.unstored,
        };
        let findings = self.compare(&workspace, &taken_in, state)?;
        Ok((findings, (!self.is_check).then_some(store)))
    }

    /// Takes a snapshot of the workspace; a check stores nothing.
    fn take(
        &self,
        workspace: &Workspace,
        index: &mut SnapshotIndex,
    ) -> Result<(ObjectStore, TakenSnapshot)> {
        if self.is_check {
            let store = ObjectStore::open_existing(&self.root)?
                .ok_or_else(|| Error::Usage("logs/objects is missing".into()))?;
            return Ok((store, index.take(workspace, &mut IdsOnly, &self.cancel)?));
        }
        let mut store = ObjectStore::open(&self.root)?;
        let mut staged = store.stage();
        let taken = index.take(workspace, &mut staged, &self.cancel)?;
        staged.finish()?;
        Ok((store, taken))
    }

    fn compare(
        &self,
        workspace: &AppliedWorkspace,
        taken_in: &TakenIn,
        state: &RunState,
    ) -> Result<ApplyFindings> {
        let root = self.root.real_path();
        let spec_file = real_path(&root.join(&state.spec_file));
        let routes = Routes::open(&taken_in.copied, &root, &spec_file)?;
        let exclude = |top: &Path| {
            let mut sources = taken_in.copied.iter();
            let source = sources.find(|source| real_path(&root.join(&source.from)) == top);
            source.map_or(&[][..], |source| &source.exclude)
        };
        let mut filters: BTreeMap<PathBuf, CopyFilter> = BTreeMap::new();
        find_changes(workspace, &routes, &mut |top: &Path, path: &Path| {
            let filter = filters
                .entry(top.to_owned())
                .or_insert_with(|| CopyFilter::new(top, exclude(top)));
            filter.left_out(path)
        })
    }

    /// Reports how a plan ended, and completes it.
    fn conclude(&self, plan: &ApplyPlan, end: ApplyEnd) -> Result<u8> {
        match end {
            ApplyEnd::Done => {
                if let Err(error) = self.record(plan) {
                    print_stderr(&format!("warning: {error}"));
                }
                plan.remove(&self.root)?;
                let summary = format!("applied: {}\n", change_count(plan));
                write_stdout(&(self.text.changes(plan) + &summary))?;
                Ok(0)
            }
            ApplyEnd::Conflicts(conflicts) => {
                self.text.print_conflicts(&conflicts);
                Ok(1)
            }
            ApplyEnd::Undone(error) => {
                print_stderr("the changes that were made are undone: the project is as it was");
                Err(error)
            }
            ApplyEnd::InBetween(error, second) => {
                print_stderr(&format!(
                    "the changes that were made could not be undone: {second}\n\
                     help: remove the cause; `orchestrator apply` completes the changes then"
                ));
                Err(error)
            }
        }
    }

    /// Adds the event to the log of the run, if there still is one.
    fn record(&self, plan: &ApplyPlan) -> Result<()> {
        if !log_file(&self.root, &plan.run_id).is_file() {
            return Ok(());
        }
        let logs = self.root.directory(LOGS)?;
        let secrets = secrets(self.env, |variable| self.env.text(variable));
        let path = self.root.join(LOGS);
        let (mut journal, _) =
            Journal::open(logs.as_fd(), &path, &plan.run_id, &secrets, &mut |_, _| {})?;
        let targets = |is_deleted: bool| {
            let changes = plan.changes.iter();
            let changes = changes.filter(|change| change.new.is_absent() == is_deleted);
            changes
                .map(|change| plan.target(change).to_string_lossy().into_owned())
                .collect()
        };
        journal.append(&Event::ChangesApplied {
            agent_id: MAIN_AGENT.into(),
            written: targets(false),
            deleted: targets(true),
        })?;
        journal.sync()
    }
}

const NOTHING: &str = "nothing to apply: the project has all changes\n";
const GIVE_UP: &str = "help: an interrupted apply is not complete. Remove the cause (bring files in conflict to one of their \
     two states) and run `orchestrator apply` again, or delete logs/apply.json to leave the project as it is now";

/// The links of the workspace with their targets.
fn links(workspace: &Workspace, taken: &TakenSnapshot) -> Result<BTreeMap<PathBuf, PathBuf>> {
    let mut links = BTreeMap::new();
    workspace.walk_whole(&mut |entry| {
        let mut unstored = taken.unstored.iter();
        if unstored.any(|unstored| entry.path == Path::new(&unstored.path)) {
            return WalkStep::Skip;
        }
        if let EntryKind::Link { target } = &entry.kind {
            links.insert(entry.path.clone(), target.clone());
        }
        WalkStep::On
    })?;
    Ok(links)
}
