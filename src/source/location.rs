//! Errors about a part of a file of the user's.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::diagnostic::{Diagnostic, SourceFile};
use super::finding::{Finding, FindingLevel};
use crate::error::Error;

impl SourceFile {
    /// The error of one mistake.
    pub(crate) fn error(&self, code: &'static str, mistake: &Diagnostic) -> Error {
        let finding = Finding::new(self, FindingLevel::Error, code, mistake);
        Error::Findings(vec![finding])
    }
}

/// A part of a file of the user's, for messages that come up after the file was read.
#[derive(Clone, PartialEq, Eq)]
pub struct SourceLocation {
    source: Arc<SourceFile>,
    span: Range<usize>,
}

impl SourceLocation {
    pub(crate) fn new(source: Arc<SourceFile>, span: Range<usize>) -> SourceLocation {
        SourceLocation { source, span }
    }

    /// The error of a mistake here.
    pub(crate) fn error(&self, code: &'static str, message: impl Into<String>) -> Error {
        self.source.error(code, &self.diagnostic(message))
    }

    /// A mistake here, with what to write instead.
    pub(crate) fn mistake(
        &self,
        code: &'static str,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Finding {
        let mistake = self.diagnostic(message).with_help(help);
        Finding::new(&self.source, FindingLevel::Error, code, &mistake)
    }

    pub(crate) fn warning(&self, code: &'static str, message: impl Into<String>) -> Finding {
        let mistake = self.diagnostic(message);
        Finding::new(&self.source, FindingLevel::Warning, code, &mistake)
    }

    fn diagnostic(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.span.clone(), message)
    }
}

impl fmt::Debug for SourceLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source.head(self.span.start))
    }
}
