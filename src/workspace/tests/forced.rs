//! The user's own inputs: they replace whatever is at their path, and follow no links.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Error;
use crate::workspace::tests::{TestDir, mount, unmount};

fn put(dir: &TestDir, path: &str, content: &str) -> Result<(), Error> {
    dir.workspace
        .put_file(Path::new(path), &mut content.as_bytes(), 0o4644, true)
}

#[test]
fn a_file_takes_its_place() {
    let dir = TestDir::new();
    dir.file("folder/full/x", "");
    dir.link("file", dir.outside().join("precious"));
    dir.file("old", "old");
    fs::hard_link(dir.outside().join("precious"), dir.path("hard")).expect("link");
    for path in ["folder", "file", "old", "hard", "new/deep/x"] {
        put(&dir, path, "new").expect(path);
        assert_eq!((dir.read(path), dir.mode(path)), ("new".into(), 0o644));
    }
    assert_eq!(dir.names(), ["file", "folder", "hard", "new", "old"]);
    dir.assert_outside_is_whole();
}

#[test]
fn what_is_in_the_way_of_a_folder_goes() {
    let dir = TestDir::new();
    dir.link("out", dir.outside());
    dir.file("real/keep", "x");
    dir.link("in", "real");
    dir.file("file", "x");
    dir.file("locked/x", "x");
    dir.chmod("locked", 0o000);
    for path in ["out", "in", "file", "locked"] {
        put(&dir, &format!("{path}/sub/f"), "new").expect(path);
        assert_eq!(dir.read(&format!("{path}/sub/f")), "new");
        assert!(!dir.path(path).is_symlink());
    }
    assert!(dir.path("real/keep").exists() && !dir.path("real/sub").exists());
    dir.assert_outside_is_whole();
}

#[test]
fn links_and_folders_take_their_place() {
    let dir = TestDir::new();
    dir.file("a/full/x", "");
    dir.link("b", dir.outside());
    dir.file("c/x", "");
    dir.workspace
        .put_link(Path::new("a"), OsStr::new("c/x"))
        .expect("link");
    dir.workspace.make_dir(Path::new("b"), 0o2750).expect("dir");
    dir.workspace.make_dir(Path::new("c"), 0o700).expect("dir");
    assert_eq!(
        fs::read_link(dir.path("a")).expect("readlink"),
        Path::new("c/x")
    );
    assert_eq!((dir.mode("b"), dir.mode("c")), (0o750, 0o700));
    assert!(dir.path("c/x").exists());
    dir.assert_outside_is_whole();
}

#[test]
fn names_need_not_be_text() {
    let dir = TestDir::new();
    let odd = Path::new(OsStr::from_bytes(b"d/-\xff "));
    dir.workspace
        .put_file(odd, &mut "x".as_bytes(), 0o600, false)
        .expect("put");
    assert!(dir.path(odd).is_file());
    assert!(dir.workspace.remove(odd).expect("remove"));
    assert!(!dir.workspace.remove(odd).expect("remove"));
}

#[test]
fn places_outside_are_violations() {
    let dir = TestDir::new();
    for path in ["", ".", "..", "../x", "a/../../x", "/etc/x"] {
        assert!(
            matches!(put(&dir, path, "x"), Err(Error::Safety(_))),
            "{path}"
        );
        assert!(
            matches!(dir.workspace.remove(Path::new(path)), Err(Error::Safety(_))),
            "{path}"
        );
        assert!(
            matches!(
                dir.workspace.make_dir(Path::new(path), 0o755),
                Err(Error::Safety(_))
            ),
            "{path}"
        );
        assert!(
            matches!(
                dir.workspace.put_link(Path::new(path), OsStr::new("x")),
                Err(Error::Safety(_))
            ),
            "{path}"
        );
    }
    assert!(dir.names().is_empty());
}

#[test]
fn a_source_that_breaks_leaves_nothing() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }
    let dir = TestDir::new();
    dir.file("f", "old");
    let error = dir
        .workspace
        .put_file(Path::new("f"), &mut Broken, 0o644, false)
        .expect_err("broken");
    assert!(error.to_string().contains("workspace/f: broken"), "{error}");
    assert_eq!(
        (dir.names(), dir.read("f")),
        (vec!["f".to_owned()], "old".into())
    );
}

#[test]
fn mounts_are_not_forced() {
    let dir = TestDir::new();
    dir.file("m/x", "");
    if !mount(&dir.outside(), &dir.path("m")) {
        return;
    }
    assert!(put(&dir, "m/f", "x").is_err() && put(&dir, "m", "x").is_err());
    assert!(
        dir.workspace.remove(Path::new("m/precious")).is_err()
            && dir.workspace.remove(Path::new("m")).is_err()
    );
    dir.assert_outside_is_whole();
    assert_eq!(dir.names(), ["m"]);
    unmount(&dir.path("m"));
}

#[test]
fn many_inputs_take_their_places_whatever_is_there() {
    let dir = TestDir::new();
    dir.file("a/file", "old");
    dir.file("a/folder/x", "");
    fs::hard_link(dir.path("a/file"), dir.path("second")).expect("link");
    dir.link("b", dir.outside());
    dir.link("a/out", dir.outside().join("precious"));
    let mut placement = dir.workspace.place_inputs();
    let mut put = |path: &str, mode| {
        let placed = placement.put_file(Path::new(path), &mut path.as_bytes(), mode);
        placed.expect(path);
    };
    put("a/file", 0o640);
    put("a/folder", 0o600);
    put("a/out", 0o755);
    put("b/c/d", 0o4711);
    put("b/c/e", 0o600);
    put("top", 0o600);
    placement
        .make_dir(Path::new("b/c"), 0o750)
        .expect("make_dir");
    placement
        .put_link(Path::new("b/link"), OsStr::new("c"))
        .expect("put_link");
    placement
        .make_dir(Path::new("locked"), 0o500)
        .expect("make_dir");
    let placed = placement.put_file(Path::new("locked/x"), &mut &b"locked/x"[..], 0o600);
    placed.expect("put_file");
    assert_eq!(dir.mode("locked"), 0o700);
    for path in ["a/file", "a/folder", "a/out", "b/c/d", "b/c/e", "top"] {
        assert_eq!(dir.read(path), path);
    }
    let modes = ["a/file", "a/out", "b/c/d", "b/c"].map(|path| dir.mode(path));
    assert_eq!(modes, [0o640, 0o755, 0o711, 0o750]);
    assert_eq!(dir.read("second"), "old");
    dir.assert_outside_is_whole();
}
