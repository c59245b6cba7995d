use crate::cli::env::CliEnv;
pub(super) fn main(_env: &CliEnv, _json: bool) -> u8 { 0 }
