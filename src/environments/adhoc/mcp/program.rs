//! The file that describes an MCP server: its command and further variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

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
    Ok(McpProgram {
        command: words(&file.command)?,
        env: file
            .env
            .into_iter()
            .map(variable)
            .collect::<Result<_, InvalidProgram>>()?,
    })
}

/// A list of words, or a line that is split as a shell does, without a shell.
fn words(command: &Value) -> Result<Vec<OsString>, InvalidProgram> {
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
            Ok(words.into_iter().map(OsString::from).collect())
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
