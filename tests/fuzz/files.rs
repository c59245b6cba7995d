//! Files: specs, the state, the log; and answers of a model with the paths in them.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use orchestrator::internals::build::{BuildLog, answer_format, missing_transitions, parse_spec};
use orchestrator::internals::conversation::{Budget, LogState, Projection, Replay, UsageLog};
use orchestrator::internals::events::{Charge, ConversationScope, Event};
use orchestrator::internals::report::render;
use orchestrator::internals::secrets::Secrets;
use orchestrator::internals::state::{Journal, JournalRepair, ParsedState, Phase, RunState};
use orchestrator::internals::workflow::WorkflowLog;
use orchestrator::internals::workspace::SafePath;
use serde_json::Value;

use crate::harness::fuzz;

/// The run whose logs are in the corpus.
const RUN_ID: &str = "0b9e6ed1-62a1-4d51-9a63-3a8a1d7f0c11";

const SPEC_WORDS: [&str; 40] = [
    "name: ",
    "description: ",
    "checks:\n",
    "  - ",
    "command: ",
    "workspace:\n",
    "copy: ",
    "protect: ",
    "generator:\n",
    "provider: ",
    "template",
    "sandbox: ",
    "limits: ",
    "memory: 1G",
    "budget: {usd: ",
    "on_timeout: ",
    "hidden: true",
    "files: ",
    "env: ",
    "- [",
    "{",
    "}",
    "]",
    ", ",
    "&a ",
    "*a",
    "*a, *a, ",
    "<<: *a\n",
    "!!str ",
    "!x ",
    "|\n",
    ">-\n",
    "\"",
    "'",
    "---\n",
    "...\n",
    "? ",
    ": ",
    "# ",
    "\t",
];

/// A folder in memory where possible, so that syncs cost nothing.
pub(crate) fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm")
        .or_else(|_| tempfile::tempdir())
        .unwrap()
}

fn spec(name: &str, file: &str) {
    fuzz(name, &SPEC_WORDS, |bytes| {
        match parse_spec(Path::new(file), PathBuf::from("/x").join(file), bytes, None) {
            Ok(spec) => assert!(!spec.name.is_empty() && !spec.checks.is_empty()),
            Err(error) => assert!(error.to_string().contains(file), "{error}"),
        }
    });
}

#[test]
fn spec_yaml() {
    spec("spec_yaml", "spec.yaml");
}

#[test]
fn spec_json() {
    spec("spec_json", "spec.json");
}

#[test]
fn spec_markdown() {
    spec("spec_markdown", "spec.md");
}

/// A report of any log is whole, below its size, and has no markup of others.
#[test]
fn report() {
    let words = [
        "\"event\":\"",
        "StateStarted",
        "ScriptOutput",
        "TransitionOccurred",
        "AgentFailed",
        "SnapshotKept",
        "null",
        "18446744073709551615",
        "4294967295",
        "-1",
        "2026-11-18T20:06:46.123Z",
        "<script>",
        "\\u0000",
        "\\u202e",
        "]]>",
        "\n",
    ];
    fuzz("report", &words, |bytes| {
        let Some([page, _, junit]) = render(bytes) else {
            return;
        };
        assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</body>\n</html>\n"));
        assert!(page.len() < 5_000_000 && !page.contains("<script"));
        assert!(!junit.contains("<script") && !junit.contains("]]>"));
        let is_xml = |letter: char| !letter.is_control() || letter == '\n' || letter == '\t';
        assert!(junit.chars().all(is_xml));
    });
}

/// Uses the recorded usage as a run does.
fn spend(usage: &UsageLog) {
    let budget = Budget {
        usd: Some(1.0),
        tokens: Some(1000),
        price: None,
    };
    let worst = Charge {
        tokens: u64::MAX,
        cost_usd: Some(f64::MAX),
    };
    let _ = budget.readiness(worst, usage);
    let _ = budget.left(usage);
}

#[test]
fn state() {
    let words = [
        "\"state\"",
        "\"SUCCESS\"",
        "\"FAILED\"",
        "null",
        "\"reason\"",
        "\"version\"",
        "[",
        "{",
        ",",
        "\\u0000",
    ];
    fuzz("state", &words, |bytes| {
        if let Ok(ParsedState::Build(state)) = RunState::parse(bytes) {
            let mut usage = UsageLog::default();
            usage.raise_to(&state.usage);
            spend(&usage);
            state.retries_left();
            missing_transitions(&BuildLog::default(), &state);
            let again = serde_json::to_vec(&state).unwrap();
            assert!(RunState::parse(&again).is_ok(), "{state:?}");
        }
    });
}

/// Opens the log as a resume does.
fn open(folder: &Path) -> (u64, Option<JournalRepair>, Vec<Event>) {
    let (mut events, logs) = (Vec::new(), File::open(folder).unwrap());
    let (journal, mended) = Journal::open(
        logs.as_fd(),
        folder,
        RUN_ID,
        &Secrets::default(),
        &mut |_, event| events.push(event),
    )
    .unwrap();
    (journal.lines(), mended, events)
}

#[test]
fn log() {
    let words = [
        "\"event\":\"ModelAnswered\"",
        "\"event\":\"ModelRequested\"",
        "\"event\":\"TransitionOccurred\"",
        "\"seq\":",
        "\"answer\":",
        "\"usage\":",
        "\"worst\":{\"tokens\":",
        "\"phase\":\"PATCHING\"",
        "\"cost_usd\":",
        "null",
        "[",
        "{",
    ];
    let folder = folder();
    let path = folder.path().join(format!("{RUN_ID}.log"));
    fuzz("log", &words, |bytes| {
        fs::write(&path, bytes).unwrap();
        let (lines, mended, events) = open(folder.path());
        let whole = fs::read(&path).unwrap();
        let JournalRepair { skipped, cut } = mended.unwrap_or_default();
        assert!(bytes.starts_with(&whole) && (cut.is_some() == (whole.len() < bytes.len())));
        if let Some(cut) = cut {
            let kept = folder.path().join(cut.kept_as);
            assert_eq!([whole, fs::read(&kept).unwrap()].concat(), bytes);
            fs::remove_file(kept).unwrap();
        }
        let mended = (!skipped.is_empty()).then_some(JournalRepair { skipped, cut: None });
        assert_eq!(open(folder.path()), (lines, mended, events.clone()));
        let mut state = LogState::default();
        for (line, event) in (1..).zip(&events) {
            state.apply(line, event);
        }
        spend(state.usage());
        let mut workflow = WorkflowLog::default();
        for (line, event) in (1..).zip(&events) {
            workflow.apply(line, event);
        }
        let mut facts = BuildLog::default();
        if let Ok(replay) = Replay::load(&path, folder.path(), &mut facts) {
            for turn in 0..2 {
                let scope = ConversationScope::Phase {
                    phase: Phase::Generating,
                    retry_count: 0,
                };
                let _ = replay.answer("main", scope.turn(turn), &Value::Null, &[]);
            }
        }
    });
}

#[test]
fn reply() {
    let words = [
        "<file path=\"",
        "\">\n",
        "</file>\n",
        "<delete path=\"",
        "\"/>\n",
        " end=\"",
        "<file path=\"a/b\">\n",
        "```\n",
        "\r\n",
        "../",
        "/",
        "A",
        "a",
    ];
    fuzz("reply", &words, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let found = answer_format::parse(&text);
        for block in &found.blocks {
            if let answer_format::FileBlock::Write { content, .. } = block {
                assert!(text.contains(content));
            }
        }
        let paths: Result<Vec<SafePath>, _> = found
            .blocks
            .iter()
            .map(|block| SafePath::parse(block.path()))
            .collect();
        if let Ok(paths) = paths {
            let _ = found.fault(&paths, false).map(|fault| fault.to_string());
        }
    });
}

#[test]
fn path() {
    let words = [
        "/", "../", "..", "./", "\\", "C:", "~", ".git", ".GIT", "%2e", "-", " ", ".", "\0", "\n",
        "\u{2215}",
    ];
    fuzz("path", &words, |bytes| {
        match SafePath::parse(&String::from_utf8_lossy(bytes)) {
            Err(violation) => assert!(!violation.to_string().contains(char::is_control)),
            Ok(path) => {
                assert_eq!(SafePath::parse(path.as_str()).as_ref(), Ok(&path));
                assert!(
                    path.components()
                        .all(|part| !part.is_empty() && part != "." && part != "..")
                );
                assert!(!Path::new(path.as_str()).is_absolute() && !path.folded().is_empty());
                assert!(path.parent().is_none_or(|parent| path.starts_with(&parent)));
            }
        }
    });
}
