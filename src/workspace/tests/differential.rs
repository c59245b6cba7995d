//! The editor's old resolver against the shared one, on random trees: the same reads, the same writes, the same trees.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use tempfile::TempDir;

use crate::workspace::tests::old;
use crate::workspace::{FrozenPaths, PathError, ProjectDir, ProjectTarget};

/// What is made, in order; what cannot be made is left out.
#[derive(Debug, Clone)]
enum Made {
    Folder(String),
    File(String, String),
    Script(String),
    Link(String, String),
    /// An absolute link into the project.
    Inner(String, String),
    Pipe(String),
    Locked(String),
    HardLink(String, String),
}

#[derive(Debug, Clone)]
enum Asked {
    Read(String),
    /// Below the directory's absolute path.
    ReadAbsolute(String),
    Find(String),
    Straight(String),
    Edit(String),
    Create(String),
}

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["a", "b", "c", "l", "f"]).prop_map(str::to_owned)
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(name(), 1..4).prop_map(|names| names.join("/"))
}

/// A path that a link or a command may have: with dots, and out of the tree.
fn wild_path() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => name(),
        2 => Just("..".to_owned()),
        1 => Just(".".to_owned()),
        1 => Just("outside".to_owned()),
        1 => Just("precious".to_owned()),
        1 => Just("new".to_owned()),
    ];
    (
        prop::collection::vec(part, 0..5).prop_map(|parts| parts.join("/")),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(path, slash)| if slash { format!("{path}/") } else { path })
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        3 => path().prop_map(Made::Folder),
        4 => (path(), "[ab\n]{0,4}").prop_map(|(path, content)| Made::File(path, content)),
        1 => path().prop_map(Made::Script),
        5 => (path(), wild_path()).prop_map(|(path, target)| Made::Link(path, target)),
        2 => (path(), wild_path()).prop_map(|(path, target)| Made::Inner(path, target)),
        1 => path().prop_map(Made::Pipe),
        1 => path().prop_map(Made::Locked),
        1 => (path(), path()).prop_map(|(from, to)| Made::HardLink(from, to)),
    ]
}

fn asked() -> impl Strategy<Value = Asked> {
    prop_oneof![
        3 => wild_path().prop_map(Asked::Read),
        1 => wild_path().prop_map(Asked::ReadAbsolute),
        2 => wild_path().prop_map(Asked::Find),
        1 => path().prop_map(Asked::Straight),
        3 => wild_path().prop_map(Asked::Edit),
        4 => wild_path().prop_map(Asked::Create),
    ]
}

/// A project and a folder beside it that nothing may change.
struct Scene {
    root: TempDir,
}

impl Scene {
    fn new(made: &[Made]) -> Scene {
        let root =
            tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
        let scene = Scene { root };
        fs::create_dir(scene.project()).unwrap();
        fs::create_dir(scene.outside()).unwrap();
        fs::write(scene.outside().join("precious"), "precious").unwrap();
        for one in made {
            let _ = scene.make(one);
        }
        scene
    }

    fn project(&self) -> PathBuf {
        self.root.path().join("project")
    }

    fn outside(&self) -> PathBuf {
        self.root.path().join("outside")
    }

    fn make(&self, made: &Made) -> std::io::Result<()> {
        let at = |path: &str| self.project().join(path);
        let with_parent = |path: &str| fs::create_dir_all(at(path).parent().unwrap());
        match made {
            Made::Folder(path) => fs::create_dir_all(at(path)),
            Made::File(path, content) => {
                with_parent(path)?;
                fs::File::create_new(at(path))?.write_all(content.as_bytes())
            }
            Made::Script(path) => {
                with_parent(path)?;
                fs::File::create_new(at(path))?.write_all(b"#!x\n")?;
                fs::set_permissions(at(path), fs::Permissions::from_mode(0o750))
            }
            Made::Link(path, target) => {
                with_parent(path)?;
                symlink(target, at(path))
            }
            Made::Inner(path, target) => {
                with_parent(path)?;
                symlink(self.project().join(target), at(path))
            }
            Made::Pipe(path) => {
                with_parent(path)?;
                Ok(mknodat(CWD, at(path), FileType::Fifo, Mode::RWXU, 0)?)
            }
            Made::Locked(path) => {
                let found = at(path).symlink_metadata()?;
                match found.is_symlink() {
                    true => Ok(()),
                    false => fs::set_permissions(at(path), fs::Permissions::from_mode(0o500)),
                }
            }
            Made::HardLink(from, to) => fs::hard_link(at(from), at(to)),
        }
    }

    /// Every entry below the root: path, type and mode, links, content or target.
    fn picture(&self) -> BTreeSet<String> {
        let mut seen = BTreeSet::new();
        let mut waiting = vec![self.root.path().to_owned()];
        while let Some(folder) = waiting.pop() {
            for entry in fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                let meta = path.symlink_metadata().unwrap();
                let content = match meta.file_type() {
                    kind if kind.is_symlink() => format!(
                        "-> {}",
                        fs::read_link(&path)
                            .unwrap()
                            .display()
                            .to_string()
                            .replace(&self.root.path().display().to_string(), "ROOT")
                    ),
                    kind if kind.is_dir() => {
                        waiting.push(path.clone());
                        String::new()
                    }
                    kind if kind.is_file() => fs::read_to_string(&path).unwrap(),
                    _ => "special".to_owned(),
                };
                seen.insert(format!(
                    "{} {:o} {} {content:?}",
                    path.strip_prefix(self.root.path()).unwrap().display(),
                    meta.permissions().mode(),
                    if meta.is_file() {
                        std::os::unix::fs::MetadataExt::nlink(&meta)
                    } else {
                        0
                    },
                ));
            }
        }
        seen
    }
}

/// An answer: what was found, or why not.
type Answer = Result<String, String>;

fn answer_old(scene: &Scene, frozen: &FrozenPaths, asked: &Asked) -> Answer {
    use old::resolve::{FrozenPaths, MissingFolders, ProjectDir, ResolvedTarget};
    let mut project = ProjectDir::open(&scene.project()).unwrap();
    project.freeze(FrozenPaths {
        paths: frozen.paths.clone(),
        except: frozen.except.clone(),
    });
    let read = |path: &Path| {
        let (place, content, _) = project.read(path)?;
        Ok(format!("{} {content:?}", place.real.display()))
    };
    let done: Result<String, old::resolve::PathError> = match asked {
        Asked::Read(path) => read(Path::new(path)),
        Asked::ReadAbsolute(path) => read(&scene.project().join(path)),
        Asked::Find(path) => project
            .follow(Path::new(path), MissingFolders::Found)
            .and_then(|target| match target {
                ResolvedTarget::Folder(real) => Ok(format!("folder {}", real.display())),
                ResolvedTarget::Place(place) => {
                    let size = old::write::existing(&place)?.map(|stat| stat.st_size as u64);
                    Ok(format!("{} {size:?}", place.real.display()))
                }
            }),
        Asked::Straight(path) => project
            .read_straight(Path::new(path), 3)
            .map(|content| format!("{content:?}")),
        Asked::Edit(path) => project.read(Path::new(path)).and_then(|(place, _, stat)| {
            project.refuse_frozen(&place.real, &place.folder)?;
            old::write::put(&place, b"edited", Some(&stat))?;
            Ok(place.real.display().to_string())
        }),
        Asked::Create(path) => project
            .resolve(Path::new(path), MissingFolders::Made)
            .and_then(|place| {
                project.refuse_frozen(&place.real, &place.folder)?;
                let old = old::write::existing(&place)?;
                if old.is_some_and(|old| old.st_size != 0) {
                    return Ok("full".to_owned());
                }
                old::write::put(&place, b"#!created", old.as_ref())?;
                Ok(place.real.display().to_string())
            }),
    };
    done.map_err(|error| error.to_string())
}

fn answer_new(scene: &Scene, frozen: &FrozenPaths, asked: &Asked) -> Answer {
    let mut project = ProjectDir::open(&scene.project()).unwrap();
    project.freeze(frozen.clone());
    let read = |path: &Path| {
        let file = project.read(path)?;
        Ok(format!("{} {:?}", file.path.real.display(), file.content))
    };
    let done: Result<String, PathError> = match asked {
        Asked::Read(path) => read(Path::new(path)),
        Asked::ReadAbsolute(path) => read(&scene.project().join(path)),
        Asked::Find(path) => project
            .find(Path::new(path))
            .and_then(|target| match target {
                ProjectTarget::Folder(real) => Ok(format!("folder {}", real.display())),
                ProjectTarget::Entry(found) => {
                    let size = found.existing()?.map(|meta| meta.size);
                    Ok(format!("{} {size:?}", found.real.display()))
                }
            }),
        Asked::Straight(path) => project
            .read_straight(Path::new(path), 3)
            .map(|content| format!("{content:?}")),
        Asked::Edit(path) => project.read(Path::new(path)).and_then(|file| {
            project.require_changeable(&file.path)?;
            project.write(&file.path, b"edited", Some(&file.meta))?;
            Ok(file.path.real.display().to_string())
        }),
        Asked::Create(path) => project.find_new(Path::new(path)).and_then(|found| {
            project.require_changeable(&found)?;
            let old = found.existing()?;
            if old.is_some_and(|old| old.size != 0) {
                return Ok("full".to_owned());
            }
            project.write(&found, b"#!created", old.as_ref())?;
            Ok(found.real.display().to_string())
        }),
    };
    done.map_err(|error| error.to_string())
}

/// A special file on the way is named now, where the old resolver said that it is not a directory.
fn same_kind(answer: &Answer) -> Answer {
    match answer {
        Err(text) if text.contains("Not a directory") => {
            Err("it is a pipe, socket or device".to_owned())
        }
        other => other.clone(),
    }
}

/// Folders that `..` leaves again were made, or refused as frozen, by the old resolver, also before a refusal. The new one
/// makes only those that the file is in. Nothing frozen may have changed.
fn only_passed_folders(
    (before, old, new): (&BTreeSet<String>, &BTreeSet<String>, &BTreeSet<String>),
    old_answer: &Answer,
    frozen: &FrozenPaths,
) -> bool {
    let frozen_changed = new.difference(before).any(|entry| {
        let path = entry.split(' ').next().unwrap_or_default();
        let path = Path::new(path.trim_start_matches("project/"));
        !frozen.except.contains(path) && path.ancestors().any(|part| frozen.paths.contains(part))
    });
    let made_folder = old
        .difference(before)
        .any(|entry| entry.contains(" 40755 0 ") && !new.contains(entry));
    let was_frozen = matches!(old_answer, Err(text) if text.contains("protected") || text.contains("Permission"));
    !frozen_changed && (made_folder || was_frozen)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(
        std::env::var("DIFFERENTIAL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400)
    ))]

    #[test]
    fn the_shared_resolver_answers_as_the_old_one(
        made in prop::collection::vec(made(), 0..14),
        asked in prop::collection::vec(asked(), 1..5),
        frozen in prop::collection::btree_set(path().prop_map(PathBuf::from), 0..3),
        except in prop::collection::btree_set(path().prop_map(PathBuf::from), 0..2),
    ) {
        let frozen = FrozenPaths { paths: frozen, except };
        let (old_scene, new_scene) = (Scene::new(&made), Scene::new(&made));
        prop_assert_eq!(old_scene.picture(), new_scene.picture());
        let has_dots = |one: &Made| matches!(one, Made::Link(_, to) | Made::Inner(_, to) if to.contains(".."));
        for one in &asked {
            let before = new_scene.picture();
            let old = answer_old(&old_scene, &frozen, one);
            let new = answer_new(&new_scene, &frozen, one);
            let (old_tree, new_tree) = (old_scene.picture(), new_scene.picture());
            if old_tree != new_tree || same_kind(&old) != same_kind(&new) {
                let Asked::Create(path) = one else {
                    panic!("{one:?}: {old:?} {new:?}\n{old_tree:#?}\n{new_tree:#?}");
                };
                // The folders on the way to a file that was refused were made, too.
                if old == new && new.is_err() && new_tree == before {
                    return Ok(());
                }
                prop_assert!(
                    (path.contains("..") || made.iter().any(has_dots))
                        && only_passed_folders((&before, &old_tree, &new_tree), &old, &frozen),
                    "{one:?}: {old:?} {new:?}\n{old_tree:#?}\n{new_tree:#?}"
                );
                return Ok(());
            }
            prop_assert_eq!(
                fs::read_to_string(new_scene.outside().join("precious")).unwrap(),
                "precious"
            );
        }
    }
}
