//! The file that describes an MCP server: its command and further variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Component, Path};

use serde::Deserialize;
use serde_json::Value;

use crate::environments::adhoc::FOLDER;
use crate::environments::adhoc::program_file::{InvalidProgram, read_yaml};

/// How an MCP server is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpProgram {
    pub command: Vec<OsString>,
    /// Variables beside those of every environment.
    pub env: Vec<(OsString, OsString)>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct McpProgramFile {
    command: Value,
    #[serde(default)]
    env: BTreeMap<String, Value>,
}

/// Reads the description of an MCP server.
pub(in crate::environments::adhoc) fn read_server(
    path: &Path,
) -> Result<McpProgram, InvalidProgram> {
    let file: McpProgramFile = read_yaml(path)?;
    let variable = |(name, value): (String, Value)| Ok((variable_name(name)?, text_of(&value)?));
    let above = path.parent().and_then(Path::parent).unwrap_or(path);
    let words = words(&file.command)?;
    Ok(McpProgram {
        command: words.iter().map(|word| located(word, above)).collect(),
        env: file
            .env
            .into_iter()
            .map(variable)
            .collect::<Result<_, InvalidProgram>>()?,
    })
}

/// A word that names something in `env/` as a path to it, since agents may work elsewhere; any other word as it is.
fn located(word: &str, above: &Path) -> OsString {
    let path = Path::new(word.strip_prefix("./").unwrap_or(word));
    let mut parts = path.components();
    let is_inside = parts.next() == Some(Component::Normal(FOLDER.as_ref()))
        && parts.all(|part| matches!(part, Component::Normal(_)));
    let found = above.join(path);
    match is_inside && found.exists() {
        true => found.into(),
        false => word.into(),
    }
}

/// A list of words, or a line that is split as a shell does, without a shell.
fn words(command: &Value) -> Result<Vec<String>, InvalidProgram> {
    let expected = || InvalidProgram::Field("command: expected a text or a list of texts".into());
    let words = match command {
        Value::String(line) => shlex::split(line)
            .ok_or_else(|| InvalidProgram::Field("command: a quote is not closed".into()))?,
        Value::Array(words) => words
            .iter()
            .map(|word| word.as_str().map(str::to_owned).ok_or_else(expected))
            .collect::<Result<_, _>>()?,
        _ => return Err(expected()),
    };
    match words.first() {
        Some(program) if !program.is_empty() && !words.iter().any(|word| word.contains('\0')) => {
            Ok(words)
        }
        _ => Err(InvalidProgram::Field("command: no program is named".into())),
    }
}

fn variable_name(name: String) -> Result<OsString, InvalidProgram> {
    if name.is_empty() || name.contains(['=', '\0']) {
        let problem = format!("env: {name:?} is not the name of a variable");
        return Err(InvalidProgram::Field(problem));
    }
    Ok(name.into())
}

fn text_of(value: &Value) -> Result<OsString, InvalidProgram> {
    match value {
        Value::String(text) if !text.contains('\0') => Ok(text.into()),
        Value::Number(_) | Value::Bool(_) => Ok(value.to_string().into()),
        _ => Err(InvalidProgram::Field(
            "env: expected a text for each variable".into(),
        )),
    }
}
