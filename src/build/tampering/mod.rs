//! Detects files that decide a test run from outside the tests.
//!
//! A module that Python imports at start or instead of the runner, metadata that loads plugins, and a second module
//! with the import name of a test can make any suite pass. They are refused in an answer, and before each check that
//! would find them (`violations.rs`). Configuration of runners and builds is legitimate work, so beside tests of the
//! user it is only named (`notes.rs`). Files that the user gave, unchanged, are neither refused nor named.

mod given;
mod installed;
mod manifests;
mod notes;
mod python;
mod rules;
mod test_modules;
mod violations;

pub(crate) use rules::TamperingRules;
pub(crate) use violations::written;
