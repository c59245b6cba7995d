//! Reads a small YAML file that describes a program.

use std::io;
use std::path::Path;

use serde::de::DeserializeOwned;

/// A larger file is refused.
const YAML_LIMIT: u64 = 64 << 10;

/// Why a file does not describe a program.
#[derive(Debug, thiserror::Error)]
pub enum InvalidProgram {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it has {bytes} bytes, more than {YAML_LIMIT}")]
    TooLarge { bytes: u64 },
    #[error("{0}")]
    Yaml(String),
    /// `prompt` is not a regular expression.
    #[error("prompt: {0}")]
    Prompt(#[from] regex::Error),
    /// A field has a value that it cannot have.
    #[error("{0}")]
    Field(String),
}

pub(super) fn read_yaml<T: DeserializeOwned>(path: &Path) -> Result<T, InvalidProgram> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > YAML_LIMIT {
        return Err(InvalidProgram::TooLarge { bytes });
    }
    let text = std::fs::read_to_string(path)?;
    serde_yaml::from_str(&text).map_err(|error| InvalidProgram::Yaml(error.to_string()))
}
