//! Names of entries: from the spec and the variables of an entry alone, never from other entries.

use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::text::hex;

const STEM_CHARACTERS: usize = 60;
const HEX_CHARACTERS: usize = 8;
const GIVEN_CHARACTERS: usize = 64;

/// `<stem>-<8 hex>`: the hex is the start of a hash over the absolute path of the spec, the variables and the number of
/// the repetition, from 0.
pub(crate) fn entry_name(spec: &Path, variables: &Map<String, Value>, repeat: u32) -> String {
    let stem = spec.file_stem().unwrap_or_default().to_string_lossy();
    let stem: String = stem
        .chars()
        .map(|c| match c {
            'A'..='Z' | 'a'..='z' | '0'..='9' | '.' | '_' | '-' => c,
            _ => '-',
        })
        .take(STEM_CHARACTERS)
        .collect();
    let mut sha = Sha256::new();
    sha.update(spec.as_os_str().as_bytes());
    sha.update([0]);
    sha.update(canonical(&Value::Object(variables.clone())));
    sha.update([0]);
    sha.update(repeat.to_string());
    format!("{stem}-{}", &hex(&sha.finalize())[..HEX_CHARACTERS])
}

/// JSON without white space, with the keys of every object sorted.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            let fields = fields
                .into_iter()
                .map(|(key, value)| format!("{}:{}", Value::from(key.as_str()), canonical(value)));
            format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            let items = items.iter().map(canonical);
            format!("[{}]", items.collect::<Vec<_>>().join(","))
        }
        plain => plain.to_string(),
    }
}

/// An absolute path without `.` and repeated slashes, and without `..` where this leads to the same file: a name must not
/// depend on how a path was typed.
pub(crate) fn usual_spelling(path: &Path) -> PathBuf {
    let plain: PathBuf = path.components().collect();
    let mut short = PathBuf::new();
    for component in plain.components() {
        match component {
            Component::ParentDir => drop(short.pop()),
            other => short.push(other),
        }
    }
    let is_same = short == plain || short.canonicalize().ok() == plain.canonicalize().ok();
    if is_same { short } else { plain }
}

/// Whether a manifest may give this name: `[A-Za-z0-9][A-Za-z0-9._-]{0,63}`.
pub(crate) fn is_entry_name(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    name.len() <= GIVEN_CHARACTERS
        && name.bytes().all(is_inner)
        && name
            .bytes()
            .next()
            .is_some_and(|c| c.is_ascii_alphanumeric())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(spec: &str, variables: Value, repeat: u32) -> String {
        let Value::Object(variables) = variables else {
            panic!("{variables}");
        };
        entry_name(Path::new(spec), &variables, repeat)
    }

    #[test]
    fn a_name_depends_on_the_spec_its_variables_and_the_repetition() {
        // printf '/s/a b.yaml\0{}\0%d' 0 | sha256sum
        assert_eq!(name("/s/a b.yaml", json!({}), 0), "a-b-20b31efe");
        let sorted = name("/s/a.yaml", json!({"a": 1, "b": {"c": [2], "d": "x"}}), 0);
        let other = name("/s/a.yaml", json!({"b": {"d": "x", "c": [2]}, "a": 1}), 0);
        assert_eq!(sorted, other);
        assert_ne!(
            name("/s/a.yaml", json!({}), 1),
            name("/s/a.yaml", json!({}), 0)
        );
        assert_ne!(
            name("/s/a.yaml", json!({}), 0),
            name("/t/a.yaml", json!({}), 0)
        );
        let long = name(&format!("/s/{}.yaml", "ä".repeat(80)), json!({}), 0);
        assert_eq!(long.len(), STEM_CHARACTERS + 1 + HEX_CHARACTERS);
    }

    #[test]
    fn given_names_are_safe_as_file_names() {
        for good in ["a", "7", "a.b_c-d", &"x".repeat(64)] {
            assert!(is_entry_name(good), "{good}");
        }
        for bad in ["", ".a", "-a", "_a", "a/b", "a b", "ä", &"x".repeat(65)] {
            assert!(!is_entry_name(bad), "{bad}");
        }
    }
}
