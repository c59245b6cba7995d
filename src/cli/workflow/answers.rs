//! `--answer [AGENT=]TEXT`: which agent gets which text.

use std::path::Path;

use crate::cli::env::CliEnv;
use crate::error::{Error, Result};

/// Assigns the answers of a command line to the agents that ask. One that belongs to none is refused.
pub(super) fn assign_answers(
    given: &[String],
    env: &CliEnv,
    asking: &[String],
) -> Result<Vec<(String, String)>> {
    let mut answers: Vec<(String, String)> = Vec::new();
    for answer in given {
        let (agent, text) = assign(answer, asking)?;
        if answers.iter().any(|(known, _)| *known == agent) {
            return Err(Error::Usage(format!(
                "--answer: the agent {agent} is answered twice"
            )));
        }
        answers.push((agent, content(text, env)?));
    }
    Ok(answers)
}

/// The agent that an answer is for, and the rest of it.
fn assign<'a>(answer: &'a str, asking: &[String]) -> Result<(String, &'a str)> {
    if let Some((agent, text)) = answer.split_once('=')
        && asking.iter().any(|known| known == agent)
    {
        return Ok((agent.to_owned(), text));
    }
    match asking {
        [only] => Ok((only.clone(), answer)),
        [] => Err(Error::Usage("--answer: no agent asks a question".into())),
        several => Err(Error::Usage(format!(
            "--answer: several agents ask, so the answer needs a name\nhelp: --answer {}=TEXT; these agents ask: {}",
            several[0],
            several.join(", ")
        ))),
    }
}

/// The text of an answer; `@FILE` is the content of a file.
fn content(text: &str, env: &CliEnv) -> Result<String> {
    let Some(file) = text.strip_prefix('@') else {
        return Ok(text.to_owned());
    };
    let path = env.absolute(Path::new(file));
    let bytes = std::fs::read(&path).map_err(|error| {
        Error::Usage(format!("--answer: cannot read {}: {error}", path.display()))
    })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
