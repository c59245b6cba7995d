//! Snapshots of a real folder: taken, compared, brought back, pruned.

use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use tempfile::TempDir;

use super::objects::IdsOnly;
use super::objects::{ObjectId, ObjectStore};
use super::prune::prune;
use super::records::{RunSnapshots, SnapshotRecord};
use super::restore::{CurrentTree, restore};
use super::take::{SnapshotIndex, TakenSnapshot};
use super::tree::{Tree, TreeNode, changed_paths, read_tree, write_tree};
use crate::cancel::CancelToken;
use crate::state::run::{new_run_id, timestamp};
use crate::state::store::Root;
use crate::workspace::Workspace;

struct Fixture {
    folder: TempDir,
    root: Root,
    workspace: Workspace,
    store: ObjectStore,
    index: SnapshotIndex,
}

impl Fixture {
    fn new() -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path()).unwrap();
        let path = folder.path().join("workspace");
        let workspace = Workspace::open(root.handle(), "workspace", &path).unwrap();
        let store = ObjectStore::open(&root).unwrap();
        Fixture {
            folder,
            root,
            workspace,
            store,
            index: SnapshotIndex::default(),
        }
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.folder.path().join("workspace").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("workspace").join(path)
    }

    fn take(&mut self) -> TakenSnapshot {
        let mut staged = self.store.stage();
        let cancel = CancelToken::never().unwrap();
        let taken = self
            .index
            .take(&self.workspace, &mut staged, &cancel)
            .unwrap();
        staged.finish().unwrap();
        taken
    }

    fn bring_back(&mut self, tree: ObjectId) -> Vec<std::path::PathBuf> {
        let taken = self.take();
        let now = CurrentTree::new(self.index.tree(), &taken);
        let wanted = read_tree(&self.store, tree).unwrap();
        restore(&self.workspace, &self.store, &wanted, &now, &[".gitkeep"]).unwrap()
    }

    fn objects(&self) -> HashSet<String> {
        let entries = fs::read_dir(self.folder.path().join("logs/objects")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }
}

fn names(paths: &[std::path::PathBuf]) -> Vec<&str> {
    paths.iter().map(|path| path.to_str().unwrap()).collect()
}

#[test]
fn a_snapshot_brings_everything_back() {
    let mut fixture = Fixture::new();
    fixture.write("a.py", "one\n");
    fixture.write("deep/er/b", "two\n");
    fixture.write("deep/run.sh", "#!/bin/sh\n");
    fixture.write("strange \\ name\nü", "three\n");
    fs::create_dir(fixture.path("empty")).unwrap();
    fs::set_permissions(
        fixture.path("deep/run.sh"),
        fs::Permissions::from_mode(0o755),
    )
    .unwrap();
    symlink("deep/er", fixture.path("link")).unwrap();
    let first = fixture.take();
    assert_eq!(first.changed.len(), 5);

    fixture.write("a.py", "changed\n");
    fs::remove_dir_all(fixture.path("deep")).unwrap();
    fs::remove_file(fixture.path("link")).unwrap();
    fixture.write("link/now/a/folder", "x");
    fixture.write("deep", "now a file");
    fs::remove_dir(fixture.path("empty")).unwrap();
    fixture.write(".gitkeep", "");
    let second = fixture.take();
    assert_ne!(first.tree, second.tree);
    let changed = names(&second.changed);
    for path in [
        "a.py",
        "deep",
        "deep/er/b",
        "deep/run.sh",
        "link",
        "link/now/a/folder",
    ] {
        assert!(changed.contains(&path), "{path}: {changed:?}");
    }

    assert!(fixture.bring_back(first.tree).is_empty());
    let kept = fixture.path(".gitkeep");
    assert!(kept.exists());
    fs::remove_file(kept).unwrap();
    assert_eq!(fixture.take().tree, first.tree);
    assert_eq!(
        fs::read_link(fixture.path("link")).unwrap(),
        Path::new("deep/er")
    );
    let mode = fs::metadata(fixture.path("deep/run.sh"))
        .unwrap()
        .permissions();
    assert_eq!(mode.mode() & 0o777, 0o755);
    assert!(fixture.path("empty").is_dir());

    fixture.bring_back(second.tree);
    fs::remove_file(fixture.path("deep")).unwrap();
    fixture.write("deep", "now a file");
    assert_eq!(fixture.take().tree, second.tree);
}

#[test]
fn an_equal_tree_has_the_same_id_and_adds_nothing() {
    let mut fixture = Fixture::new();
    fixture.write("a/one", "same\n");
    fixture.write("b/one", "same\n");
    let first = fixture.take();
    let objects = fixture.objects();
    // The content, the list of both folders, the list of the top.
    assert_eq!(objects.len(), 3);
    fixture.write("a/one", "same\n");
    let again = fixture.take();
    assert_eq!((again.tree, again.changed.len()), (first.tree, 0));
    assert_eq!(fixture.objects(), objects);
    let cancel = CancelToken::never().unwrap();
    let ids = SnapshotIndex::default()
        .take(&fixture.workspace, &mut IdsOnly, &cancel)
        .unwrap();
    assert_eq!(ids.tree, first.tree);
}

#[test]
fn a_change_of_mode_or_content_of_the_same_size_is_noticed() {
    let mut fixture = Fixture::new();
    fixture.write("a", "one");
    fixture.write("b", "two");
    fixture.take();
    fixture.write("a", "eno");
    fs::set_permissions(fixture.path("b"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(names(&fixture.take().changed), ["a", "b"]);
    fs::remove_file(fixture.path("a")).unwrap();
    assert_eq!(names(&fixture.take().changed), ["a"]);
}

#[test]
fn the_folders_of_tools_and_large_files_are_named_and_neither_stored_nor_removed() {
    let mut fixture = Fixture::new();
    fixture.write("target/debug/x", "x");
    fixture.write("web/node_modules/y/z", "y");
    fixture.write("a", "a");
    let empty = {
        let mut other = Fixture::new();
        other.take().tree
    };
    let big = fs::File::create(fixture.path("big")).unwrap();
    big.set_len(33 << 20).unwrap();
    let taken = fixture.take();
    let unstored: Vec<&str> = taken
        .unstored
        .iter()
        .map(|entry| entry.path.as_str())
        .collect();
    assert_eq!(unstored, ["big", "target", "web/node_modules"]);
    assert!(taken.unstored.iter().all(|entry| entry.hash.len() == 64));
    // Contents of "a" and the lists of two folders.
    assert_eq!(fixture.objects().len(), 3);
    let tree = read_tree(&fixture.store, taken.tree).unwrap();
    assert!(matches!(tree[Path::new("big")], TreeNode::Unstored { size, .. } if size == 33 << 20));

    let mut staged = fixture.store.stage();
    assert_eq!(staged.add(b"").unwrap(), empty);
    staged.finish().unwrap();
    fixture.bring_back(empty);
    assert!(!fixture.path("a").exists());
    for path in ["target/debug/x", "web/node_modules/y/z", "big"] {
        assert!(fixture.path(path).exists(), "{path}");
    }
    fs::remove_file(fixture.path("big")).unwrap();
    assert_eq!(names(&fixture.bring_back(taken.tree)), ["big"]);
}

#[test]
fn what_a_crash_left_of_new_objects_is_removed() {
    let mut fixture = Fixture::new();
    fixture.write("a", "a");
    fixture.take();
    let before = fixture.objects();
    let left = fixture.folder.path().join("logs/objects/.new-1");
    fs::create_dir(&left).unwrap();
    fs::write(left.join("half"), "x").unwrap();
    drop(ObjectStore::open(&fixture.root).unwrap());
    assert_eq!(fixture.objects(), before);
    // Objects that were added and never finished.
    let mut staged = fixture.store.stage();
    let id = staged.add(b"new").unwrap();
    drop(staged);
    assert!(!fixture.store.contains(id));
    assert_eq!(fixture.objects(), before);
}

#[test]
fn a_damaged_object_is_an_error() {
    let mut fixture = Fixture::new();
    fixture.write("a", "a");
    fixture.take();
    let id = ObjectId::of(b"a");
    let path = fixture
        .folder
        .path()
        .join("logs/objects")
        .join(id.to_string());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    fs::write(path, "b").unwrap();
    let error = fixture.store.read(id).unwrap_err().to_string();
    assert!(error.contains("damaged"), "{error}");
}

#[test]
fn the_oldest_snapshots_go_and_with_them_what_only_they_need() {
    let mut fixture = Fixture::new();
    let (old, new) = (new_run_id(), new_run_id());
    for (run_id, numbers) in [(&old, 1..=3), (&new, 1..=3)] {
        for number in numbers {
            fixture.write("a", &format!("{run_id} {number}"));
            let tree = fixture.take().tree;
            let record = SnapshotRecord {
                number,
                time: timestamp(),
                tree,
                phase: "PATCHING".into(),
                files: vec!["a".into()],
                unstored: Vec::new(),
                round: None,
                kept: None,
            };
            RunSnapshots::of(&fixture.root, run_id)
                .stage(&record)
                .unwrap()
                .place()
                .unwrap();
        }
    }
    assert_eq!(
        prune(&fixture.root, &mut fixture.store, &new, 6).unwrap(),
        0
    );
    assert_eq!(
        prune(&fixture.root, &mut fixture.store, &new, 4).unwrap(),
        2
    );
    let left: Vec<u32> = RunSnapshots::of(&fixture.root, &old)
        .list()
        .unwrap()
        .into_keys()
        .collect();
    assert_eq!(left, [3]);
    assert_eq!(fixture.objects().len(), 2 * 4);
    assert_eq!(
        prune(&fixture.root, &mut fixture.store, &new, 1).unwrap(),
        1
    );
    assert_eq!(fixture.objects().len(), 2 * 3);
    for record in RunSnapshots::of(&fixture.root, &new)
        .list()
        .unwrap()
        .values()
    {
        read_tree(&fixture.store, record.tree).unwrap();
    }
}

#[test]
fn changed_paths_are_those_of_files_and_links() {
    let mut fixture = Fixture::new();
    fixture.write("same", "x");
    fixture.write("changed", "x");
    fixture.write("gone/file", "x");
    let tree = fixture.take().tree;
    let before = read_tree(&fixture.store, tree).unwrap();
    fixture.write("changed", "y");
    fs::remove_dir_all(fixture.path("gone")).unwrap();
    fixture.write("new/file", "x");
    let tree = fixture.take().tree;
    let after = read_tree(&fixture.store, tree).unwrap();
    let changed = changed_paths(&before, &after);
    assert_eq!(changed, ["changed", "gone/file", "new/file"].map(Path::new));
}

#[test]
fn a_tree_that_was_read_is_written_with_the_same_id() {
    let mut fixture = Fixture::new();
    for path in [
        "a",
        "a.b/c",
        "a-b",
        "b/x",
        "deep/er/and/deeper",
        "deep/er2/x",
    ] {
        fixture.write(path, path);
    }
    fs::create_dir_all(fixture.path("empty/inside")).unwrap();
    symlink("a", fixture.path("link")).unwrap();
    let id = fixture.take().tree;
    let tree = read_tree(&fixture.store, id).unwrap();
    assert_eq!(write_tree(&tree, &mut IdsOnly).unwrap(), id);
    let empty = write_tree(&Tree::new(), &mut IdsOnly).unwrap();
    assert_eq!(empty, ObjectId::of(b""));
}
