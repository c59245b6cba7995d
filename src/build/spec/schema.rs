//! The JSON Schema of a spec, made from the tables of fields that the reader uses.

use serde_json::{Value, json};

use super::field_rule::{mapping, with};
use super::validate::FIELDS;

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";
const MEANING: &str = "What to build and how to check it, for orchestrator: a spec in YAML or JSON. \
    Some mistakes need more than this text, and only `orchestrator lint` finds them: paths that do not exist or are of the \
    wrong kind, programs that are not installed, a budget in USD for a model without a known price, whole numbers written \
    with a fraction (5.0), sizes beyond 64 bits, patterns of `exclude` that are not valid, and names that other systems \
    cannot have.";

/// The schema as text, indented and with a newline at its end.
pub(crate) fn schema_text() -> String {
    format!("{:#}\n", schema())
}

fn schema() -> Value {
    let head = json!({
        "$schema": DIALECT,
        "title": "Spec of orchestrator",
        "description": MEANING,
    });
    with(head, mapping(FIELDS))
}
