//! Answers from a folder, without a model: `0/` is the first answer, `1/`, `2/` … are the patches.

use std::sync::LazyLock;

use regex::Regex;

use crate::build::context::Context;
use crate::build::generators::{Generator, WrittenFiles, apply};
use crate::build::spec::{OnTimeout, Spec};
use crate::build::tampering;
use crate::error::{Error, Result};
use crate::state::phase::Phase;
use crate::workspace::{ChangeRefusal, FileChange};

/// Answers with the template of a spec; its files were read with the spec.
pub(crate) struct TemplateGenerator;

impl Generator for TemplateGenerator {
    fn write(&mut self, context: &mut Context) -> Result<WrittenFiles> {
        let round = match context.state.phase {
            Phase::Patching => context.state.retry_count as usize + 1,
            _ => 0,
        };
        let rounds = context.inputs.template.as_deref().unwrap_or_default();
        let Some(answer) = rounds.get(round) else {
            return Err(context.unusable(format!("the template has no answer {round}/")));
        };
        let changes: Vec<FileChange> = answer
            .files
            .iter()
            .map(|(path, content)| FileChange::Write {
                path: path.clone(),
                content: filled(content, &context.spec),
            })
            .collect();
        let written = changes.iter().map(tampering::written);
        context.rules.check_answer(&context.workspace, written)?;
        match context.workspace.check(&changes) {
            Ok(()) => apply(context, &changes),
            Err(ChangeRefusal::Conflict(text)) => Err(context.unusable(text)),
            Err(ChangeRefusal::Violation(violation)) => Err(Error::Safety(violation)),
            Err(ChangeRefusal::Io(error)) => Err(error),
        }
    }

    /// A prepared answer always exists.
    fn has_begun(&self, _context: &Context) -> bool {
        true
    }
}

#[expect(
    clippy::unwrap_used,
    reason = "the pattern is a constant, and a test uses it"
)]
static FIELD: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\{\{\s*(\w+)\s*\}\}").unwrap());

/// Fills in the fields of the spec. Other names in braces, and content that is not text, stay unchanged.
fn filled(content: &[u8], spec: &Spec) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(content) else {
        return content.to_vec();
    };
    FIELD
        .replace_all(text, |found: &regex::Captures<'_>| match &found[1] {
            "name" => spec.name.clone(),
            "description" => spec.description.clone(),
            "max_retries" => spec.max_retries.to_string(),
            "on_timeout" => match spec.on_timeout {
                OnTimeout::Fail => "fail".to_owned(),
                OnTimeout::Patch => "patch".to_owned(),
            },
            _ => found[0].to_owned(),
        })
        .into_owned()
        .into_bytes()
}
