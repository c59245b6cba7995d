//! The content of `state.json`: where a run stands, in exactly these fields.

use std::time::SystemTime;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};

use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// The version this program writes, and the newest one it reads.
pub const VERSION: u64 = 1;

/// A run of the build loop as it is saved.
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

/// What the recorded answers of a run came to. Costs are null where the price is not known.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsageTotals {
    pub llm_calls: u64,
    pub input_tokens: u64,
    pub output_tokens: u64,
    #[serde(deserialize_with = "present")]
    pub cost_usd: Option<f64>,
    /// What requests that broke off may have cost beside it; states of earlier versions lack it.
    #[serde(default)]
    pub lost_usd: Option<f64>,
}

impl UsageTotals {
    /// Returns totals of no call at all, at a known or an unknown price.
    pub fn none(price_is_known: bool) -> UsageTotals {
        let nothing = price_is_known.then_some(0.0);
        UsageTotals {
            llm_calls: 0,
            input_tokens: 0,
            output_tokens: 0,
            cost_usd: nothing,
            lost_usd: nothing,
        }
    }

    /// Adds one answer that took so many calls; an answer of unknown cost makes the sum unknown.
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

    /// Adds what a request that broke off may have cost; an unknown cost makes the sum unknown.
    pub fn lose(&mut self, cost_usd: Option<f64>) {
        self.lost_usd = self.lost_usd.zip(cost_usd).map(|(sum, cost)| sum + cost);
    }
}

/// What a new run is made of.
pub struct NewRun<'a> {
    pub run_id: String,
    pub spec_file: &'a str,
    pub spec_hash: &'a str,
    pub max_retries: u32,
    pub price_is_known: bool,
}

impl RunState {
    /// Returns a run that stands in INIT.
    pub fn new(birth: NewRun<'_>) -> RunState {
        let now = timestamp();
        RunState {
            version: VERSION,
            kind: RunKind::Build,
            run_id: birth.run_id,
            spec_file: birth.spec_file.to_owned(),
            spec_hash: birth.spec_hash.to_owned(),
            phase: Phase::Init,
            retry_count: 0,
            max_retries: birth.max_retries,
            test_passed: false,
            last_test_exit_code: None,
            last_test_stderr: String::new(),
            last_test_output: String::new(),
            attempt_files: Vec::new(),
            reason: None,
            last_error: None,
            usage: UsageTotals::none(birth.price_is_known),
            created_at: now.clone(),
            updated_at: now,
        }
    }

    /// Returns the number of the attempt that is under way, and how many there can be.
    pub fn attempt(&self) -> (u32, u32) {
        let number = self.retry_count + if self.phase == Phase::Patching { 2 } else { 1 };
        (number, number.max(self.max_retries + 1))
    }

    /// Returns how many patches may still be asked for.
    pub fn retries_left(&self) -> u32 {
        self.max_retries.saturating_sub(self.retry_count)
    }

    /// Reads a file's content; the error says what is wrong with it.
    pub fn parse(bytes: &[u8]) -> Result<ParsedState, String> {
        let header: StateHeader =
            serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if header.version > VERSION {
            return Err(format!(
                "made by a newer version of this program (version {})",
                header.version
            ));
        }
        if header.version != VERSION {
            return Err(format!("unknown version {}", header.version));
        }
        if header.kind == RunKind::Workflow {
            return Ok(ParsedState::Workflow);
        }
        let state: RunState = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        state.check()?;
        Ok(ParsedState::Build(Box::new(state)))
    }

    /// What the types cannot say.
    fn check(&self) -> Result<(), String> {
        let is = |ok: bool, problem: &str| if ok { Ok(()) } else { Err(problem.to_owned()) };
        is(is_run_id(&self.run_id), "run_id is no uuid4")?;
        is(is_hash(&self.spec_hash), "spec_hash is no sha256")?;
        is(
            (1..=50).contains(&self.max_retries),
            "max_retries is not in 1..50",
        )?;
        is(
            self.retry_count <= self.max_retries,
            "retry_count is above max_retries",
        )?;
        is(
            self.phase.is_terminal() == self.reason.is_some(),
            "reason does not fit the state",
        )?;
        is(
            DateTime::parse_from_rfc3339(&self.created_at).is_ok(),
            "created_at is no time",
        )?;
        is(
            DateTime::parse_from_rfc3339(&self.updated_at).is_ok(),
            "updated_at is no time",
        )?;
        is(
            self.usage.cost_usd.is_none_or(|cost| cost >= 0.0),
            "cost_usd is negative",
        )?;
        is(
            self.usage.lost_usd.is_none_or(|cost| cost >= 0.0),
            "lost_usd is negative",
        )
    }
}

/// A state file that could be read.
#[derive(Debug, Clone, PartialEq)]
pub enum ParsedState {
    Build(Box<RunState>),
    /// The state of a workflow, which is not ours to judge.
    Workflow,
}

/// What every version and kind of the file has; all else is looked at afterwards.
#[derive(Deserialize)]
struct StateHeader {
    version: u64,
    kind: RunKind,
}

/// Reads a field that may be null but not absent.
fn present<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(
    field: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(field)
}

/// Returns the time of the wall, even where its clock stands before 1970.
pub fn now() -> DateTime<Utc> {
    SystemTime::now().into()
}

/// Returns the time as it stands in `state.json` and in the log: RFC 3339, UTC, milliseconds.
pub fn timestamp() -> String {
    now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Returns a new id for a run.
pub fn new_run_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// Whether the text is a run id: a uuid4 in its one spelling. Names of log files are made of it.
pub fn is_run_id(text: &str) -> bool {
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
        })
    }

    fn with(change: impl FnOnce(&mut Value)) -> Result<ParsedState, String> {
        let mut value = serde_json::to_value(example()).unwrap();
        change(&mut value);
        RunState::parse(value.to_string().as_bytes())
    }

    #[test]
    fn what_is_written_is_read_back() {
        let state = example();
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(
            RunState::parse(text.as_bytes()),
            Ok(ParsedState::Build(Box::new(state)))
        );
    }

    #[test]
    fn what_does_not_fit_is_refused() {
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
    fn a_newer_version_and_the_other_kind_are_told_apart() {
        assert!(
            with(|state| state["version"] = json!(9))
                .unwrap_err()
                .contains("newer")
        );
        assert_eq!(
            with(|state| state["kind"] = json!("workflow")),
            Ok(ParsedState::Workflow)
        );
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
