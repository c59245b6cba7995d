//! The user's own inputs: they take their place whatever stands there, and follow nothing.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::error::Error;
use crate::workspace::tests::{Place, mount, unmount};

fn put(place: &Place, path: &str, content: &str) -> Result<(), Error> {
    place
        .workspace
        .put_file(Path::new(path), &mut content.as_bytes(), 0o4644, true)
}

#[test]
fn a_file_takes_its_place() {
    let place = Place::new();
    place.file("folder/full/x", "");
    place.link("file", place.outside().join("precious"));
    place.file("old", "old");
    fs::hard_link(place.outside().join("precious"), place.path("hard")).expect("link");
    for path in ["folder", "file", "old", "hard", "new/deep/x"] {
        put(&place, path, "new").expect(path);
        assert_eq!((place.read(path), place.mode(path)), ("new".into(), 0o644));
    }
    assert_eq!(place.names(), ["file", "folder", "hard", "new", "old"]);
    place.assert_outside_is_whole();
}

#[test]
fn what_is_in_the_way_of_a_folder_goes() {
    let place = Place::new();
    place.link("out", place.outside());
    place.file("real/keep", "x");
    place.link("in", "real");
    place.file("file", "x");
    place.file("locked/x", "x");
    place.chmod("locked", 0o000);
    for path in ["out", "in", "file", "locked"] {
        put(&place, &format!("{path}/sub/f"), "new").expect(path);
        assert_eq!(place.read(&format!("{path}/sub/f")), "new");
        assert!(!place.path(path).is_symlink());
    }
    assert!(place.path("real/keep").exists() && !place.path("real/sub").exists());
    place.assert_outside_is_whole();
}

#[test]
fn links_and_folders_take_their_place() {
    let place = Place::new();
    place.file("a/full/x", "");
    place.link("b", place.outside());
    place.file("c/x", "");
    place
        .workspace
        .put_link(Path::new("a"), OsStr::new("c/x"))
        .expect("link");
    place
        .workspace
        .make_dir(Path::new("b"), 0o2750)
        .expect("dir");
    place
        .workspace
        .make_dir(Path::new("c"), 0o700)
        .expect("dir");
    assert_eq!(
        fs::read_link(place.path("a")).expect("readlink"),
        Path::new("c/x")
    );
    assert_eq!((place.mode("b"), place.mode("c")), (0o750, 0o700));
    assert!(place.path("c/x").exists());
    place.assert_outside_is_whole();
}

#[test]
fn names_need_not_be_text() {
    let place = Place::new();
    let odd = Path::new(OsStr::from_bytes(b"d/-\xff "));
    place
        .workspace
        .put_file(odd, &mut "x".as_bytes(), 0o600, false)
        .expect("put");
    assert!(place.path(odd).is_file());
    assert!(place.workspace.remove(odd).expect("remove"));
    assert!(!place.workspace.remove(odd).expect("remove"));
}

#[test]
fn places_outside_are_violations() {
    let place = Place::new();
    for path in ["", ".", "..", "../x", "a/../../x", "/etc/x"] {
        assert!(
            matches!(put(&place, path, "x"), Err(Error::Safety(_))),
            "{path}"
        );
        assert!(
            matches!(
                place.workspace.remove(Path::new(path)),
                Err(Error::Safety(_))
            ),
            "{path}"
        );
        assert!(
            matches!(
                place.workspace.make_dir(Path::new(path), 0o755),
                Err(Error::Safety(_))
            ),
            "{path}"
        );
        assert!(
            matches!(
                place.workspace.put_link(Path::new(path), OsStr::new("x")),
                Err(Error::Safety(_))
            ),
            "{path}"
        );
    }
    assert!(place.names().is_empty());
}

#[test]
fn a_source_that_breaks_leaves_nothing() {
    struct Broken;
    impl std::io::Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("broken"))
        }
    }
    let place = Place::new();
    place.file("f", "old");
    let error = place
        .workspace
        .put_file(Path::new("f"), &mut Broken, 0o644, false)
        .expect_err("broken");
    assert!(error.to_string().contains("workspace/f: broken"), "{error}");
    assert_eq!(
        (place.names(), place.read("f")),
        (vec!["f".to_owned()], "old".into())
    );
}

#[test]
fn mounts_are_not_forced() {
    let place = Place::new();
    place.file("m/x", "");
    if !mount(&place.outside(), &place.path("m")) {
        return;
    }
    assert!(put(&place, "m/f", "x").is_err() && put(&place, "m", "x").is_err());
    assert!(
        place.workspace.remove(Path::new("m/precious")).is_err()
            && place.workspace.remove(Path::new("m")).is_err()
    );
    place.assert_outside_is_whole();
    assert_eq!(place.names(), ["m"]);
    unmount(&place.path("m"));
}
