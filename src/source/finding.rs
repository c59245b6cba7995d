//! What is wrong, or likely wrong, with a file of the user's: one form for specs and workflows, for people and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::diagnostic::{Diagnostic, SourceFile, escape};

/// How many errors, and how many warnings, are collected about one file.
const MAX_IN_FILE: usize = 500;
/// How many findings an error shows.
const MAX_SHOWN: usize = 20;

/// Whether a finding stops a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FindingLevel {
    Error,
    Warning,
}

impl FindingLevel {
    pub(crate) fn word(self) -> &'static str {
        match self {
            FindingLevel::Error => "error",
            FindingLevel::Warning => "warning",
        }
    }
}

/// A mistake or a warning with its place. Displayed as `FILE:LINE:COLUMN: message`, with the source line where there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// As the user wrote it; of a state, relative to its workflow.
    pub(crate) file: String,
    /// From 1.
    pub(crate) line: usize,
    /// In characters, from 1.
    pub(crate) column: usize,
    /// Behind the last character on the same line.
    pub(crate) end_column: usize,
    pub(crate) level: FindingLevel,
    /// A fixed word for the kind of finding.
    pub(crate) code: &'static str,
    /// Escaped, on one line.
    pub(crate) message: String,
    pub(crate) help: Option<String>,
    rendered: String,
}

impl Finding {
    /// A finding about a part of a text.
    pub(crate) fn new(
        source: &SourceFile,
        level: FindingLevel,
        code: &'static str,
        diagnostic: &Diagnostic,
    ) -> Finding {
        let position = source.position(&diagnostic.span);
        Finding {
            file: source.path.to_string_lossy().into_owned(),
            line: position.line,
            column: position.column,
            end_column: position.end_column,
            level,
            code,
            message: escape(&diagnostic.message),
            help: diagnostic.help_text().as_deref().map(escape),
            rendered: source.render(diagnostic),
        }
    }

    /// A finding about a file as a whole.
    pub(crate) fn of_file(
        file: &str,
        level: FindingLevel,
        code: &'static str,
        message: &str,
    ) -> Finding {
        let message = escape(message);
        Finding {
            rendered: format!("{}:1:1: {message}", escape(file)),
            file: file.to_owned(),
            line: 1,
            column: 1,
            end_column: 1,
            level,
            code,
            message,
            help: None,
        }
    }

    /// Moves a finding about a file to a place in it.
    pub(crate) fn at(self, line: usize, column: usize) -> Finding {
        let rendered = format!("{}:{line}:{column}: {}", escape(&self.file), self.message);
        Finding {
            line,
            column,
            end_column: column,
            rendered,
            ..self
        }
    }

    /// Adds what to do about it.
    pub(crate) fn with_help(self, help: &str) -> Finding {
        let help = escape(help);
        Finding {
            rendered: format!("{}\n  = help: {help}", self.rendered),
            help: Some(help),
            ..self
        }
    }

    /// The message with its place, on one line.
    pub(crate) fn summary(&self) -> String {
        let Finding { line, column, .. } = self;
        format!("{}:{line}:{column}: {}", escape(&self.file), self.message)
    }

    pub(crate) fn is_error(&self) -> bool {
        self.level == FindingLevel::Error
    }

    /// The finding as `lint --json` prints it; `check` is another name of `code`.
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "end_column": self.end_column,
            "level": self.level.word(),
            "code": self.code,
            "check": self.code,
            "message": self.message,
            "help": self.help,
        })
    }
}

/// The message of an error with these findings; the first ones are shown.
pub(crate) fn listed(findings: &[Finding]) -> String {
    let shown = findings.iter().take(MAX_SHOWN).map(Finding::to_string);
    let more = findings.get(MAX_SHOWN).map(|next| {
        let count = findings.len() - MAX_SHOWN;
        format!("{}: {count} more mistakes", escape(&next.file))
    });
    shown.chain(more).collect::<Vec<_>>().join("\n")
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.rendered)
    }
}

/// The findings about one file; those beyond a bound are dropped.
#[derive(Debug)]
pub(crate) struct FindingList<'a> {
    source: &'a SourceFile,
    findings: Vec<Finding>,
}

impl<'a> FindingList<'a> {
    pub(crate) fn new(source: &'a SourceFile) -> FindingList<'a> {
        let findings = Vec::new();
        FindingList { source, findings }
    }

    pub(crate) fn add(&mut self, level: FindingLevel, code: &'static str, diagnostic: &Diagnostic) {
        let same = self.findings.iter().filter(|known| known.level == level);
        if same.count() < MAX_IN_FILE {
            let finding = Finding::new(self.source, level, code, diagnostic);
            self.findings.push(finding);
        }
    }

    /// Adds a finding about the file as a whole.
    pub(crate) fn add_whole(&mut self, level: FindingLevel, code: &'static str, message: &str) {
        let file = self.source.path.to_string_lossy();
        let finding = Finding::of_file(&file, level, code, message);
        self.findings.push(finding);
    }

    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.findings
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn a_finding_has_its_place() {
        let check = |text: &str, span: Range<usize>, place: (usize, usize, usize)| {
            let source = SourceFile {
                path: PathBuf::from("a.md"),
                text: text.to_owned(),
            };
            let diagnostic = Diagnostic::new(span, "wrong\u{1b}").with_help("right");
            let finding = Finding::new(&source, FindingLevel::Error, "name", &diagnostic);
            assert_eq!(
                (finding.line, finding.column, finding.end_column),
                place,
                "{text:?}"
            );
            let (line, column, _) = place;
            let shown = finding.to_string();
            let head = format!("a.md:{line}:{column}: wrong\\u{{1b}}\n");
            assert!(
                shown.starts_with(&head) && shown.contains("help: right"),
                "{shown}"
            );
        };
        check("a: 1\nbä: x\n", 10..11, (2, 5, 6));
        check("a\r\nb: 23\r\n", 6..8, (2, 4, 6));
        check("\"a\nb\"", 0..5, (1, 1, 3));
        check("", 7..9, (1, 1, 1));
        check("a\n", 2..2, (2, 1, 1));
    }

    #[test]
    fn the_number_of_findings_is_bounded() {
        let source = SourceFile {
            path: PathBuf::from("a.md"),
            text: String::new(),
        };
        let mut list = FindingList::new(&source);
        for level in [FindingLevel::Warning, FindingLevel::Error] {
            for _ in 0..1000 {
                list.add(level, "name", &Diagnostic::new(0..0, "wrong"));
            }
        }
        let findings = list.into_vec();
        let errors = findings.iter().filter(|finding| finding.is_error());
        assert_eq!((errors.count(), findings.len()), (500, 1000));
    }

    #[test]
    fn the_json_form_has_every_field() {
        let finding = Finding::of_file("A.md", FindingLevel::Warning, "dead-end", "no way on")
            .with_help("add a result");
        let expected = json!({
            "file": "A.md", "line": 1, "column": 1, "end_column": 1, "level": "warning", "code": "dead-end",
            "check": "dead-end", "message": "no way on", "help": "add a result",
        });
        assert_eq!(finding.to_json(), expected);
        let shown = "A.md:1:1: no way on\n  = help: add a result";
        assert_eq!(finding.to_string(), shown);
    }
}
