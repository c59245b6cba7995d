//! The command that resumes a run, ready to be pasted into a shell.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cli::arguments::RunArguments;
use crate::cli::env::CliEnv;
use crate::text::invisible::printable;
use crate::text::quote::shell_word;

pub(super) fn resume_command(arguments: &RunArguments, spec: &Path, env: &CliEnv) -> String {
    let path = |path: &Path| path.as_os_str().to_owned();
    let options = [
        ("--spec", Some(path(spec))),
        ("--root", env.named_root.as_deref().map(path)),
        (
            "--max-retries",
            arguments
                .max_retries
                .map(|number| number.to_string().into()),
        ),
        (
            "--budget",
            arguments.budget.map(|usd| usd.to_string().into()),
        ),
        ("--provider", arguments.provider.clone().map(Into::into)),
        ("--model", arguments.model.clone().map(Into::into)),
        ("--replay", arguments.replay.as_deref().map(path)),
    ];
    let flags = [
        ("--debug", arguments.debug),
        ("--quiet", arguments.quiet),
        ("--json", arguments.json),
        ("--no-sandbox", arguments.no_sandbox),
    ];
    let options = options
        .iter()
        .filter_map(|(name, value)| Some(option(name, value.as_deref()?)));
    let flags = flags.iter().filter(|(_, is_given)| *is_given);
    let words: Vec<String> = ["orchestrator run".to_owned()]
        .into_iter()
        .chain(options)
        .chain(flags.map(|(name, _)| (*name).to_owned()))
        .collect();
    words.join(" ")
}

fn option(name: &str, value: &OsStr) -> String {
    // A value that looks like an option needs `=`.
    let separator = if value.as_bytes().starts_with(b"-") {
        "="
    } else {
        " "
    };
    format!("{name}{separator}{}", quote(value))
}

/// Quotes a word for a POSIX shell where it needs it.
fn quote(word: &OsStr) -> String {
    match word.to_str() {
        Some(word) if printable(word) == word && !word.contains('\n') => shell_word(word),
        _ => escape(word.as_bytes()),
    }
}

/// A word with invisible characters or invalid UTF-8, as a `printf` that prints it.
fn escape(word: &[u8]) -> String {
    let escaped = word.iter().map(|byte| match byte {
        b'%' => "%%".to_owned(),
        byte if byte.is_ascii_alphanumeric() || b" _@+=:,./-".contains(byte) => {
            char::from(*byte).to_string()
        }
        byte => format!("\\{byte:03o}"),
    });
    format!("\"$(printf '{}')\"", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        for (word, shown) in [
            (&b"specs/a.yaml"[..], "specs/a.yaml"),
            (b"", "''"),
            (b"it's $HOME", "'it'\\''s $HOME'"),
            (b"a\xff\n%'b", "\"$(printf 'a\\377\\012%%\\047b')\""),
        ] {
            assert_eq!(quote(OsStr::from_bytes(word)), shown);
        }
    }
}
