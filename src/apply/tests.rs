//! The engine without the binary: changes at the same time, mixtures that a crash leaves, routes and links.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::carry_out::{self, ApplyEnd};
use super::changes::{AppliedWorkspace, ApplyFindings, find_changes};
use super::plan::ApplyPlan;
use super::routes::{Route, Routes};
use super::skipped::git_part;
use crate::cancel::CancelToken;
use crate::snapshots::objects::{ObjectId, ObjectStore};
use crate::snapshots::prune::prune;
use crate::snapshots::records::{CopiedSource, RunSnapshots, SnapshotRecord, TakenIn};
use crate::snapshots::take::{SnapshotIndex, TakenSnapshot};
use crate::snapshots::tree::read_tree;
use crate::state::run::{new_run_id, timestamp};
use crate::state::store::Root;
use crate::workspace::{EntryKind, WalkStep, Workspace};

/// A root with the folder `project` that the workspace was copied from.
struct Fixture {
    folder: TempDir,
    root: Root,
    workspace: Workspace,
    store: ObjectStore,
    run_id: String,
}

impl Fixture {
    fn new(files: &[(&str, &str)]) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = folder.path().join("workspace");
        let mut fixture = Fixture {
            workspace: Workspace::open(root.handle(), "workspace", &path).unwrap(),
            store: ObjectStore::open(&root).unwrap(),
            run_id: new_run_id(),
            folder,
            root,
        };
        for (path, text) in files {
            fixture.write(&format!("project/{path}"), text);
            fixture.write(&format!("workspace/{path}"), text);
        }
        let (taken, _) = fixture.take();
        let taken_in = TakenIn {
            tree: taken.tree,
            copied: vec![source("project", "", true)],
            protected: Vec::new(),
        };
        let snapshots = RunSnapshots::of(&fixture.root, &fixture.run_id);
        snapshots
            .stage_taken_in(&taken_in)
            .unwrap()
            .place()
            .unwrap();
        fixture
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    fn take(&mut self) -> (TakenSnapshot, SnapshotIndex) {
        let mut index = SnapshotIndex::default();
        let cancel = CancelToken::never().unwrap();
        let mut staged = self.store.stage();
        let taken = index.take(&self.workspace, &mut staged, &cancel).unwrap();
        staged.finish().unwrap();
        (taken, index)
    }

    fn find(&mut self) -> ApplyFindings {
        let (taken, index) = self.take();
        let snapshots = RunSnapshots::of(&self.root, &self.run_id);
        let taken_in = snapshots.taken_in().unwrap().unwrap();
        let mut links = BTreeMap::new();
        let visited = self.workspace.walk_whole(&mut |entry| {
            if let EntryKind::Link { target } = &entry.kind {
                links.insert(entry.path.clone(), target.clone());
            }
            WalkStep::On
        });
        visited.unwrap();
        let tree = |id: ObjectId| read_tree(&self.store, id).unwrap();
        let workspace = AppliedWorkspace {
            run_id: self.run_id.clone(),
            tree: taken.tree,
            taken_in: tree(taken_in.tree),
            applied: snapshots.applied().unwrap().map(tree),
            now: index.tree(),
            unstored: taken.unstored,
            links,
            protected: Vec::new(),
        };
        let root = self.root.real_path();
        let routes = Routes::open(&taken_in.copied, &root, &root.join("spec.yaml")).unwrap();
        find_changes(&workspace, &routes, &mut |_, _| Ok(None)).unwrap()
    }

    fn begin(&mut self, plan: &ApplyPlan) -> ApplyEnd {
        carry_out::begin(plan, &self.root, &mut self.store).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("project")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn source(from: &str, to: &str, is_folder: bool) -> CopiedSource {
    CopiedSource {
        from: PathBuf::from(from),
        to: to.to_owned(),
        is_folder,
        exclude: Vec::new(),
    }
}

#[test]
fn a_target_that_changes_after_the_comparison_undoes_everything() {
    let mut fixture = Fixture::new(&[("a", "1"), ("b", "1"), ("c", "1"), ("z", "1")]);
    fs::remove_file(fixture.path("workspace/a")).unwrap();
    for name in ["b", "z", "new/file"] {
        fixture.write(&format!("workspace/{name}"), "2");
    }
    let findings = fixture.find();
    assert!(findings.conflicts.is_empty(), "{findings:?}");
    fixture.write("project/z", "mine");
    let ApplyEnd::Conflicts(conflicts) = fixture.begin(&findings.plan) else {
        panic!("no conflict");
    };
    assert_eq!(conflicts[0].target.file_name().unwrap(), "z");
    assert_eq!(fixture.names(), ["a", "b", "c", "z"]);
    assert_eq!(fixture.read("project/b"), "1");
    assert_eq!(fixture.read("project/z"), "mine");
    assert!(ApplyPlan::load(&fixture.root).unwrap().is_none());
}

#[test]
fn a_plan_can_be_completed_from_any_mixture_of_old_and_new() {
    let names = ["a", "b", "c"];
    for done in 0..8_u32 {
        let mut fixture = Fixture::new(&[("a", "1"), ("b", "1"), ("sub/gone", "1")]);
        fs::remove_dir_all(fixture.path("workspace/sub")).unwrap();
        for name in names {
            fixture.write(&format!("workspace/{name}"), "2");
        }
        let plan = fixture.find().plan;
        plan.save(&fixture.root).unwrap();
        for (bit, name) in names.iter().enumerate() {
            if done & (1 << bit) != 0 {
                fixture.write(&format!("project/{name}"), "2");
            }
        }
        let plan = ApplyPlan::load(&fixture.root).unwrap().unwrap();
        let end = carry_out::complete(&plan, &fixture.root, &fixture.store).unwrap();
        assert!(matches!(end, ApplyEnd::Done), "{end:?}");
        plan.remove(&fixture.root).unwrap();
        assert_eq!(fixture.names(), names);
        assert!(
            names
                .iter()
                .all(|name| fixture.read(&format!("project/{name}")) == "2")
        );
        let applied = RunSnapshots::of(&fixture.root, &fixture.run_id).applied();
        assert_eq!(applied.unwrap(), Some(plan.tree));
        assert!(fixture.find().plan.changes.is_empty());
    }
}

#[test]
fn a_plan_of_a_root_that_was_moved_goes_on_there() {
    let mut fixture = Fixture::new(&[("a", "1")]);
    fixture.write("workspace/a", "2");
    fixture.find().plan.save(&fixture.root).unwrap();
    let moved = tempfile::tempdir().unwrap();
    let target = moved.path().join("root");
    fs::rename(fixture.folder.path(), &target).unwrap();
    let root = Root::open(&target).unwrap();
    let plan = ApplyPlan::load(&root).unwrap().unwrap();
    let store = ObjectStore::open_existing(&root).unwrap().unwrap();
    let end = carry_out::complete(&plan, &root, &store).unwrap();
    assert!(matches!(end, ApplyEnd::Done), "{end:?}");
    assert_eq!(fs::read_to_string(target.join("project/a")).unwrap(), "2");
}

#[test]
fn the_objects_of_an_unfinished_plan_are_not_pruned() {
    let mut fixture = Fixture::new(&[("a", "1")]);
    fixture.write("workspace/a", "2");
    let plan = fixture.find().plan;
    plan.save(&fixture.root).unwrap();
    // The newest run, and an old one whose only snapshot goes.
    let newest = new_run_id();
    for (run_id, number) in [(&fixture.run_id, 1), (&newest, 1), (&newest, 2)] {
        let record = SnapshotRecord {
            number,
            time: timestamp(),
            tree: plan.tree,
            phase: "GENERATING".into(),
            files: Vec::new(),
            unstored: Vec::new(),
            round: None,
            kept: None,
        };
        let snapshots = RunSnapshots::of(&fixture.root, run_id);
        snapshots.stage(&record).unwrap().place().unwrap();
    }
    let old_content = ObjectId::of(b"1");
    let removed = prune(&fixture.root, &mut fixture.store, &newest, 2).unwrap();
    assert_eq!(removed, 1);
    assert!(fixture.store.contains(old_content));
    plan.remove(&fixture.root).unwrap();
    let newer = RunSnapshots::of(&fixture.root, &fixture.run_id);
    assert!(newer.list().unwrap().is_empty());
}

#[test]
fn links_stay_inside_only_if_every_step_does() {
    let mut fixture = Fixture::new(&[("a/b/file", "1")]);
    let links = [
        ("inside", "a/b/file", true),
        ("a/up", "../inside", true),
        ("a/b/twice", "../../a/up", true),
        ("nothing", "a/missing", true),
        ("out", "..", false),
        ("a/b/far", "../../../project/a", false),
        ("absolute", "/etc", false),
        ("through", "folder/x", false),
        ("folder", "../elsewhere", false),
        ("one", "two/x", false),
        ("two", "three/y", false),
        ("three", "two/z", false),
        ("git", "a/.git/hooks", false),
    ];
    for (path, target, _) in links {
        symlink(target, fixture.path(&format!("workspace/{path}"))).unwrap();
    }
    let findings = fixture.find();
    for (path, _, stays) in links {
        let is_skipped = findings.skipped.contains_key(Path::new(path));
        assert_eq!(!is_skipped, stays, "{path}");
    }
}

#[test]
fn the_deepest_source_is_the_target() {
    let fixture = Fixture::new(&[("sub/a", "1")]);
    fixture.write("other/x", "1");
    fixture.write("one.py", "1");
    let copied = [
        source("project", "", true),
        source("other", "sub", true),
        source("one.py", "sub/one.py", false),
        source("gone", "gone", true),
    ];
    let root = fixture.root.real_path();
    let routes = Routes::open(&copied, &root, Path::new("/spec")).unwrap();
    let target = |path: &str, was_taken_in| match routes.route(Path::new(path), was_taken_in) {
        Route::To(to) => routes.target(&to).strip_prefix(&root).unwrap().to_owned(),
        Route::SourceGone(from) => panic!("{from:?}"),
        Route::Nowhere => PathBuf::new(),
    };
    for (path, was_taken_in, expected) in [
        ("new", false, "project/new"),
        ("sub/x", true, "other/x"),
        ("sub/new", false, "other/new"),
        ("sub/a", true, "project/sub/a"),
        ("sub/deleted", true, "other/deleted"),
        ("sub/one.py", true, "one.py"),
        ("sub/one.py/inner", false, "other/one.py/inner"),
    ] {
        assert_eq!(target(path, was_taken_in), Path::new(expected), "{path}");
    }
    assert_eq!(
        routes.route(Path::new("gone/x"), true),
        Route::SourceGone(root.join("gone"))
    );
}

#[test]
fn git_is_recognised_in_any_case_and_place() {
    let part = |path: &str| git_part(Path::new(path)).map(|part| part.display().to_string());
    assert_eq!(part(".git/config").as_deref(), Some(".git"));
    assert_eq!(part("a/.Git/x/.git").as_deref(), Some("a/.Git"));
    for path in ["git", ".gitignore", "a/.github/x", ".git2"] {
        assert_eq!(part(path), None, "{path}");
    }
}
