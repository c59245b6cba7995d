//! The fixed words for what a finding is about, as `lint --json` prints them and `docs/cli.md` lists them.

/// The text cannot be read: its encoding, YAML or JSON.
pub(crate) const SYNTAX: &str = "syntax";
/// A field of a spec is unknown, missing, or has a value that it cannot have.
pub(crate) const FIELD: &str = "field";
/// A file or folder that a spec names cannot be taken.
pub(crate) const INPUT: &str = "input";
/// The program of a check cannot be started.
pub(crate) const PROGRAM: &str = "program";
/// A budget in USD needs a price.
pub(crate) const PRICE: &str = "price";
/// A number is out of range and replaced.
pub(crate) const CLAMPED: &str = "clamped";

/// A workflow has no start, or several.
pub(crate) const ENTRY: &str = "entry";
/// A state cannot be read, or a key of its front matter has a value that it cannot have.
pub(crate) const FRONT_MATTER: &str = "front-matter";
pub(crate) const EMPTY_PROMPT: &str = "empty-prompt";
/// A link leads out of the directory.
pub(crate) const LINK: &str = "link";
/// A name means no state, or two.
pub(crate) const NAME: &str = "name";
pub(crate) const MISSING_RETURN: &str = "missing-return";
pub(crate) const MISSING_NEXT: &str = "missing-next";
/// Nothing leads to a state.
pub(crate) const UNREACHABLE: &str = "unreachable";
/// A state says no way on.
pub(crate) const DEAD_END: &str = "dead-end";
/// A call whose callee cannot reach a `result`.
pub(crate) const NEVER_RETURNS: &str = "never-returns";
/// A cycle from which no `result` can be reached.
pub(crate) const ENDLESS: &str = "endless";
pub(crate) const UNKNOWN_KEY: &str = "unknown-key";
pub(crate) const UNKNOWN_TAG: &str = "unknown-tag";
/// Forks of one state differ in where their parent goes on.
pub(crate) const FORK_NEXT: &str = "fork-next";
/// A policy entry that the prompt does not mention.
pub(crate) const UNUSED_ENTRY: &str = "unused-entry";
