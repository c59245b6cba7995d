//! The result of an entry, `results/NAME.json`: the object of `run --json`, and when and where it was made.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Result;
use crate::fleet::folder::FleetFolder;
use crate::fleet::plan::FleetEntry;
use crate::state::run::UsageTotals;

/// How a task ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(crate) enum TaskOutcome {
    Success,
    Failed,
    Paused,
    Refused,
}

impl TaskOutcome {
    pub(crate) fn word(self) -> &'static str {
        match self {
            TaskOutcome::Success => "SUCCESS",
            TaskOutcome::Failed => "FAILED",
            TaskOutcome::Paused => "PAUSED",
            TaskOutcome::Refused => "REFUSED",
        }
    }
}

/// The fields of a result that a fleet needs.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct TaskResult {
    pub(crate) outcome: TaskOutcome,
    pub(crate) exit_code: u8,
    pub(crate) reason: String,
    pub(crate) run_id: Option<String>,
    pub(crate) usage: UsageTotals,
    pub(crate) message: String,
    #[serde(flatten)]
    pub(crate) task: TaskFacts,
}

/// What a result has beside the object of `run --json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TaskFacts {
    pub(crate) spec_hash: String,
    /// What the next request may cost where the budget of the fleet was too small for it, in USD.
    pub(crate) needs_usd: Option<f64>,
    pub(crate) host: String,
    pub(crate) started_at: String,
    pub(crate) ended_at: String,
}

impl TaskResult {
    /// Reads the result of an entry, if it has one.
    pub(crate) fn load(folder: &FleetFolder, name: &str) -> Result<Option<TaskResult>> {
        folder.read_json(&folder.result_file(name))
    }

    /// Whether the entry is over: this result is of its spec, and not of the run that is to be continued.
    pub(crate) fn is_over(&self, entry: &FleetEntry) -> bool {
        let is_of_spec = self.task.spec_hash == entry.spec_hash;
        let is_continued = entry.continues.is_some() && entry.continues == self.run_id;
        match self.outcome {
            TaskOutcome::Success | TaskOutcome::Failed => is_of_spec && !is_continued,
            TaskOutcome::Paused | TaskOutcome::Refused => false,
        }
    }

    /// The first line of the message.
    pub(crate) fn first_line(&self) -> &str {
        self.message.lines().next().unwrap_or_default()
    }
}

/// The object of `run --json` with the facts of its task.
pub(crate) fn result_object(outcome: Value, task: &TaskFacts) -> Value {
    let facts = serde_json::to_value(task).unwrap_or_default();
    match (outcome, facts) {
        (Value::Object(mut fields), Value::Object(facts)) => {
            fields.extend(facts);
            Value::Object(fields)
        }
        (outcome, _) => outcome,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    #[test]
    fn an_entry_is_over_for_its_spec_unless_the_run_is_continued() {
        let facts = TaskFacts {
            spec_hash: "h".into(),
            ..TaskFacts::default()
        };
        let usage = serde_json::to_value(UsageTotals::none(true)).unwrap();
        let result = |outcome: &str| -> TaskResult {
            let object = json!({"outcome": outcome, "exit_code": 1, "reason": "stuck", "run_id": "r",
                "retry_count": 0, "usage": usage, "message": "a\nb", "notes": [], "checks": [], "next": null});
            serde_json::from_value(result_object(object, &facts)).unwrap()
        };
        let mut entry = FleetEntry {
            name: "a".into(),
            spec: "a.yaml".into(),
            spec_hash: "h".into(),
            variables: Map::new(),
            repeat: 0,
            continues: None,
            left_out: false,
        };
        let over = |entry: &FleetEntry, outcome: &str| result(outcome).is_over(entry);
        assert!(over(&entry, "SUCCESS") && over(&entry, "FAILED"));
        assert!(!over(&entry, "PAUSED") && !over(&entry, "REFUSED"));
        assert_eq!(result("FAILED").first_line(), "a");
        entry.continues = Some("r".into());
        assert!(!over(&entry, "FAILED"));
        entry.continues = Some("older".into());
        assert!(over(&entry, "FAILED"));
        entry.spec_hash = "other".into();
        assert!(!over(&entry, "SUCCESS"));
    }
}
