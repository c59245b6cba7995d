//! What a test needs beyond cargo, python3 and bash. A test that cannot run says why; with `CI` set it fails.

use std::path::Path;

/// Says why a test, or a part of it, cannot run here. With `CI` set that is a failure.
pub fn skip(reason: impl AsRef<str>) {
    let reason = reason.as_ref();
    assert!(std::env::var_os("CI").is_none_or(|value| value.is_empty()), "cannot run although CI is set: {reason}");
    eprintln!("skipped: {reason}");
}

/// Whether a program of the system is there; where it is not, the test is skipped.
pub fn program(name: &str) -> bool {
    let is_there = ["/usr/local/bin", "/usr/bin", "/bin"].iter().any(|folder| Path::new(folder).join(name).exists());
    if !is_there {
        skip(format!("there is no {name} here"));
    }
    is_there
}
