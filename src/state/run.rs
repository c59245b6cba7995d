//! The content of `state.json`.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// The version that is written, and the newest that is read.
pub(crate) const VERSION: u64 = 1;

/// A saved run of the build loop.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunState {
    pub version: u64,
    pub kind: RunKind,
    pub run_id: String,
    pub spec_file: String,
    pub spec_hash: String,
    #[serde(rename = "state")]
    pub phase: Phase,
    pub retry_count: u32,
    pub max_retries: u32,
    pub test_passed: bool,
    #[serde(deserialize_with = "present")]
    pub last_test_exit_code: Option<i32>,
    pub last_test_stderr: String,
    pub last_test_output: String,
    pub attempt_files: Vec<String>,
    #[serde(deserialize_with = "present")]
    pub reason: Option<Reason>,
    #[serde(deserialize_with = "present")]
    pub last_error: Option<String>,
    pub usage: UsageTotals,
    /// The run that this one continues; absent in states of earlier versions.
    #[serde(default)]
    pub continues: Option<String>,
    pub created_at: String,
    pub updated_at: String,
}

/// What kind of run a root holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RunKind {
    Build,
    Workflow,
}

/// Usage of the recorded answers of a run. Costs are null if the price is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageTotals {
    pub llm_calls: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(deserialize_with = "present")]
    pub cost_usd: Option<f64>,
    /// What interrupted requests may have cost in addition; absent in states of earlier versions.
    #[serde(default)]
    pub lost_usd: Option<f64>,
}

impl UsageTotals {
    pub fn none(price_is_known: bool) -> UsageTotals {
        let zero = price_is_known.then_some(0.0);
        UsageTotals {
            cost_usd: zero,
            lost_usd: zero,
            ..UsageTotals::default()
        }
    }

    /// Adds one answer; an unknown cost makes the sum unknown.
    pub fn add(
        &mut self,
        calls: u64,
        input_tokens: u64,
        output_tokens: u64,
        cost_usd: Option<f64>,
    ) {
        self.llm_calls = self.llm_calls.saturating_add(calls);
        self.input_tokens = self.input_tokens.saturating_add(input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(output_tokens);
        self.cost_usd = self.cost_usd.zip(cost_usd).map(|(sum, cost)| sum + cost);
    }
}

/// The parameters of a new run.
pub struct NewRun<'a> {
    pub run_id: String,
    pub spec_file: &'a str,
    pub spec_hash: &'a str,
    pub max_retries: u32,
    pub price_is_known: bool,
    /// The run that it continues.
    pub continues: Option<String>,
}

impl RunState {
    /// A run in INIT.
    pub fn new(new: NewRun<'_>) -> RunState {
        let now = timestamp();
        RunState {
            version: VERSION,
            kind: RunKind::Build,
            run_id: new.run_id,
            spec_file: new.spec_file.to_owned(),
            spec_hash: new.spec_hash.to_owned(),
            phase: Phase::Init,
            retry_count: 0,
            max_retries: new.max_retries,
            test_passed: false,
            last_test_exit_code: None,
            last_test_stderr: String::new(),
            last_test_output: String::new(),
            attempt_files: Vec::new(),
            reason: None,
            last_error: None,
            usage: UsageTotals::none(new.price_is_known),
            continues: new.continues,
            created_at: now.clone(),
            updated_at: now,
        }
    }

    /// The number of the current attempt, and how many there can be.
    pub fn attempt(&self) -> (u32, u32) {
        let number = self.retry_count + if self.phase == Phase::Patching { 2 } else { 1 };
        (number, number.max(self.max_retries + 1))
    }

    /// How many patches may still be requested.
    pub fn retries_left(&self) -> u32 {
        self.max_retries.saturating_sub(self.retry_count)
    }

    /// Parses the content of `state.json`.
    pub fn parse(bytes: &[u8]) -> Result<ParsedState, InvalidState> {
        let header: StateHeader = serde_json::from_slice(bytes)?;
        if header.version > VERSION {
            return Err(InvalidState::NewerVersion(header.version));
        }
        if header.version != VERSION {
            return Err(InvalidState::UnknownVersion(header.version));
        }
        if header.kind == RunKind::Workflow {
            return Ok(ParsedState::Workflow);
        }
        let state: RunState = serde_json::from_slice(bytes)?;
        state.check()?;
        Ok(ParsedState::Build(Box::new(state)))
    }

    /// Checks what the types cannot express.
    fn check(&self) -> Result<(), InvalidState> {
        let is_time = |text: &str| DateTime::parse_from_rfc3339(text).is_ok();
        let is_cost = |cost: Option<f64>| cost.is_none_or(|cost| cost >= 0.0);
        let rules = [
            (is_run_id(&self.run_id), "run_id is not a version 4 UUID"),
            (is_hash(&self.spec_hash), "spec_hash is not a SHA-256"),
            (
                self.continues.as_deref().is_none_or(is_run_id),
                "continues is not a version 4 UUID",
            ),
            (
                (1..=50).contains(&self.max_retries),
                "max_retries is not in 1..50",
            ),
            (
                self.retry_count <= self.max_retries,
                "retry_count is above max_retries",
            ),
            (
                self.phase.is_terminal() == self.reason.is_some(),
                "reason does not fit the state",
            ),
            (is_time(&self.created_at), "created_at is not a time"),
            (is_time(&self.updated_at), "updated_at is not a time"),
            (is_cost(self.usage.cost_usd), "cost_usd is negative"),
            (is_cost(self.usage.lost_usd), "lost_usd is negative"),
        ];
        match rules.into_iter().find(|(holds, _)| !holds) {
            Some((_, problem)) => Err(InvalidState::Field(problem)),
            None => Ok(()),
        }
    }
}

/// A parsed state file.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedState {
    Build(Box<RunState>),
    /// The state of a workflow; its fields are not checked here.
    Workflow,
}

/// Why `state.json` is not a state.
#[derive(Debug, thiserror::Error)]
pub enum InvalidState {
    #[error("it is not a regular file")]
    NotRegularFile,
    #[error("it has {bytes} bytes, more than any state")]
    TooLarge { bytes: u64 },
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("made by a newer version of this program (version {0})")]
    NewerVersion(u64),
    #[error("unknown version {0}")]
    UnknownVersion(u64),
    /// A field has an impossible value; the text names it.
    #[error("{0}")]
    Field(&'static str),
}

/// What every version and kind of the file has; parsed before everything else.
#[derive(Deserialize)]
struct StateHeader {
    version: u64,
    kind: RunKind,
}

/// Deserializes a field that may be null but not absent.
pub(crate) fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(field)
}

/// The current time; works before 1970, too.
pub(crate) fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// The current time as in `state.json` and the log: RFC 3339, UTC, milliseconds.
pub(crate) fn timestamp() -> String {
    now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

pub(crate) fn new_run_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Whether the text is a run id: a version 4 UUID in its canonical form. Log file names are made of it.
pub(crate) fn is_run_id(text: &str) -> bool {
    uuid::Uuid::try_parse(text).is_ok_and(|id| id.get_version_num() == 4 && id.to_string() == text)
}

fn is_hash(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64 && hex.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn example() -> RunState {
        let hash = format!("sha256:{}", "0".repeat(64));
        RunState::new(NewRun {
            run_id: new_run_id(),
            spec_file: "specs/x.yaml",
            spec_hash: &hash,
            max_retries: 5,
            price_is_known: false,
            continues: None,
        })
    }

    fn with(change: impl FnOnce(&mut Value)) -> Result<ParsedState, InvalidState> {
        let mut value = serde_json::to_value(example()).unwrap();
        change(&mut value);
        RunState::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_written_state_is_read_back() {
        let state = example();
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            RunState::parse(text.as_bytes()).unwrap(),
            ParsedState::Build(Box::new(state))
        );
    }

    #[test]
    fn invalid_fields_are_refused() {
        let cases: Vec<(&str, Value)> = vec![
            ("state", json!("RUNNING")),
            ("state", json!("testing")),
            ("state", json!("SUCCESS")),
            ("reason", json!("tests_passed")),
            ("version", json!("1")),
            ("version", json!(0)),
            ("version", json!(2)),
            ("run_id", json!("../../x")),
            ("run_id", json!("6ba7b810-9dad-11d1-80b4-00c04fd430c8")),
            ("retry_count", json!(-1)),
            ("retry_count", json!(1.5)),
            ("retry_count", json!(6)),
            ("max_retries", json!(0)),
            ("max_retries", json!(51)),
            ("usage", json!([])),
            (
                "usage",
                json!({"llm_calls": 0, "input_tokens": 0, "output_tokens": 0}),
            ),
            ("spec_hash", json!("sha256:0")),
            ("created_at", json!("yesterday")),
            ("extra", json!(1)),
        ];
        for (field, value) in cases {
            let shown = format!("{field}: {value}");
            assert!(with(|state| state[field] = value).is_err(), "{shown}");
        }
        assert!(with(|state| drop(state.as_object_mut().unwrap().remove("usage"))).is_err());
        assert!(RunState::parse(b"").is_err());
        assert!(RunState::parse(b"{}").is_err());
        assert!(RunState::parse("[".repeat(100_000).as_bytes()).is_err());
    }

    #[test]
    fn a_newer_version_and_the_other_kind_are_distinguished() {
        assert!(matches!(
            with(|state| state["version"] = json!(9)),
            Err(InvalidState::NewerVersion(9))
        ));
        assert!(matches!(
            with(|state| state["kind"] = json!("workflow")),
            Ok(ParsedState::Workflow)
        ));
    }

    #[test]
    fn a_duplicate_key_is_refused() {
        let text = serde_json::to_string(&example()).unwrap();
        let twice = text.replacen("{", "{\"retry_count\":0,", 1);
        assert!(RunState::parse(twice.as_bytes()).is_err());
    }

    #[test]
    fn every_prefix_is_refused() {
        let text = serde_json::to_string(&example()).unwrap();
        for end in 0..text.len() {
            assert!(RunState::parse(&text.as_bytes()[..end]).is_err(), "{end}");
        }
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = RunState::parse(&bytes);
        }
    }
}
