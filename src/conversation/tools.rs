//! The schema of a tool, and the meaning of a call's arguments.
//!
//! Every environment takes the same three arguments. The schema requires none of them, so that a call without them gets a
//! result that says what is missing, instead of an error of the server.

use std::fmt;
use std::time::Duration;

use serde_json::{Value, json};

use crate::environments::registry::ControlAction;
use crate::llm::ToolOffer;

/// How long a command may take by default.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(120);
const SHORTEST: f64 = 1.0;
const LONGEST: f64 = 600.0;
/// Characters of invalid arguments in a message.
const SHOWN: usize = 200;

/// What a call asks of its environment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ToolAction {
    Run(String),
    Control(ControlAction),
}

/// A call with valid arguments.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ToolCommand {
    pub action: ToolAction,
    pub timeout: Duration,
}

/// The description of an environment for the model.
pub(crate) fn offer(name: &str, description: &str) -> ToolOffer {
    let schema = json!({
        "type": "object",
        "properties": {
            "command": {"type": "string", "description": "What to run; needed for the action run."},
            "action": {
                "type": "string",
                "enum": ["run", "wait", "interrupt", "restart"],
                "description": "run (the default): run the command. wait: wait on for the one that is running. \
                                interrupt: send it Ctrl+C. restart: end everything in this tool and start it afresh.",
            },
            "timeout": {
                "type": "number",
                "description": "Seconds to wait, 1 to 600, for run and wait; 120 where it is missing.",
            },
        },
    });
    ToolOffer {
        name: name.to_owned(),
        description: description.to_owned(),
        schema,
    }
}

/// Why a call was not run, for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallRefusal(pub String);

impl fmt::Display for CallRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for CallRefusal {}

impl From<&str> for CallRefusal {
    fn from(text: &str) -> CallRefusal {
        CallRefusal(text.to_owned())
    }
}

/// Reads the arguments of a call.
pub(crate) fn read(input: &Value, raw: Option<&str>) -> Result<ToolCommand, CallRefusal> {
    let Some(fields) = input.as_object() else {
        let shown: String = raw.unwrap_or_default().chars().take(SHOWN).collect();
        return Err(CallRefusal(format!(
            "the arguments are no JSON object: {shown:?}; give command, and action or timeout if needed"
        )));
    };
    let given = |name: &str| fields.get(name).filter(|value| !value.is_null());
    let action = match given("action") {
        None => None,
        Some(Value::String(word)) => action(word)?,
        Some(_) => {
            return Err(
                "action must be one of \"run\", \"wait\", \"interrupt\" and \"restart\"".into(),
            );
        }
    };
    let action = match (action, given("command")) {
        (Some(action), _) => ToolAction::Control(action),
        (None, Some(Value::String(command))) => ToolAction::Run(command.clone()),
        (None, Some(_)) => return Err("command must be a string".into()),
        (None, None) => return Err("command is missing".into()),
    };
    let seconds = match given("timeout") {
        None => {
            return Ok(ToolCommand {
                action,
                timeout: DEFAULT_TIMEOUT,
            });
        }
        Some(value) => value
            .as_f64()
            .ok_or("timeout must be a number of seconds, 1 to 600")?,
    };
    Ok(ToolCommand {
        action,
        timeout: Duration::from_secs_f64(seconds.clamp(SHORTEST, LONGEST)),
    })
}

/// The control action; `None` for `run`.
fn action(word: &str) -> Result<Option<ControlAction>, CallRefusal> {
    match word {
        "run" => Ok(None),
        "wait" => Ok(Some(ControlAction::Wait)),
        "interrupt" => Ok(Some(ControlAction::Interrupt)),
        "restart" => Ok(Some(ControlAction::Restart)),
        other => {
            let shown: String = other.chars().take(SHOWN).collect();
            Err(CallRefusal(format!(
                "unknown action {shown:?}; there are run, wait, interrupt and restart"
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parsed(input: Value) -> Result<(ToolAction, f64), CallRefusal> {
        read(&input, None).map(|command| (command.action, command.timeout.as_secs_f64()))
    }

    #[test]
    fn arguments_are_read() {
        let run = |command: &str| ToolAction::Run(command.into());
        assert_eq!(parsed(json!({"command": "ls"})), Ok((run("ls"), 120.0)));
        assert_eq!(
            parsed(json!({"command": "", "action": "run", "timeout": 5})),
            Ok((run(""), 5.0))
        );
        assert_eq!(
            parsed(json!({"command": "x", "action": null, "timeout": null})),
            Ok((run("x"), 120.0))
        );
        assert_eq!(
            parsed(json!({"command": 5, "action": "wait"})),
            Ok((ToolAction::Control(ControlAction::Wait), 120.0))
        );
        assert_eq!(
            parsed(json!({"action": "restart", "more": []})),
            Ok((ToolAction::Control(ControlAction::Restart), 120.0))
        );
    }

    #[test]
    fn a_timeout_is_clamped() {
        for (given, meant) in [
            (json!(0), 1.0),
            (json!(-3), 1.0),
            (json!(601), 600.0),
            (json!(1e300), 600.0),
            (json!(2.5), 2.5),
        ] {
            assert_eq!(
                parsed(json!({"command": "x", "timeout": given})).unwrap().1,
                meant
            );
        }
    }

    #[test]
    fn invalid_arguments_are_explained() {
        for (input, word) in [
            (json!({}), "command"),
            (json!({"command": 5}), "command"),
            (json!({"command": null}), "command"),
            (json!({"command": "x", "action": "fly"}), "fly"),
            (json!({"command": "x", "action": 7}), "action"),
            (json!({"command": "x", "timeout": "soon"}), "timeout"),
            (Value::Null, "JSON object"),
        ] {
            let problem = parsed(input.clone()).unwrap_err().to_string();
            assert!(problem.contains(word), "{input}: {problem}");
        }
        assert!(
            read(&Value::Null, Some("touch ran"))
                .unwrap_err()
                .0
                .contains("touch ran")
        );
    }

    proptest! {
        #[test]
        fn any_arguments_give_a_command_or_a_refusal(text in ".{0,40}", number in any::<f64>()) {
            let arguments = json!({"command": text, "timeout": number, "action": text});
            match read(&arguments, Some(&text)) {
                Ok(command) => prop_assert!(command.timeout.as_secs() <= 600),
                Err(refusal) => prop_assert!(!refusal.0.is_empty()),
            }
        }
    }
}
