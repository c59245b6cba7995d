//! The command that resumes a run, ready to be pasted into a shell.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::cli::arguments::RunArguments;
use crate::cli::env::CliEnv;
use crate::state::workflow::{WorkflowPhase, WorkflowState};
use crate::text::invisible::printable;
use crate::text::quote::shell_word;

/// The options that the command which goes on with a build repeats, beside the spec and the root, as words.
pub(super) fn kept_options(arguments: &RunArguments) -> Vec<String> {
    let given = build_options(arguments).into_iter();
    let mut words: Vec<String> = given
        .map(|(name, value)| (name, value.to_string_lossy().into_owned()))
        .flat_map(|(name, value)| match value.starts_with('-') {
            true => vec![format!("{name}={value}")],
            false => vec![name.to_owned(), value],
        })
        .collect();
    words.extend(arguments.no_sandbox.then(|| "--no-sandbox".to_owned()));
    words
}

/// The given options of a build that have values, beside the spec and the root.
fn build_options(arguments: &RunArguments) -> Vec<(&'static str, OsString)> {
    let mut options: Vec<(&str, OsString)> = Vec::new();
    let mut add = |name, value: Option<OsString>| options.extend(value.map(|value| (name, value)));
    let max_retries = arguments.max_retries;
    add(
        "--max-retries",
        max_retries.map(|number| number.to_string().into()),
    );
    add(
        "--budget",
        arguments.budget.map(|usd| usd.to_string().into()),
    );
    add("--provider", arguments.provider.clone().map(Into::into));
    add("--model", arguments.model.clone().map(Into::into));
    add("--replay", arguments.replay.clone().map(Into::into));
    for setting in &arguments.set {
        add("--set", Some(setting.to_string().into()));
    }
    options
}

/// The command that goes on with the build that a root has, as its state and its log name it.
pub(super) fn resume_saved_build(
    spec_file: &str,
    options: &[String],
    continues: bool,
    env: &CliEnv,
) -> String {
    let root = env.named_root.as_deref();
    let spec = root.unwrap_or(Path::new("")).join(spec_file);
    let mut given = vec![("--spec", spec.into_os_string())];
    given.extend(root.map(|root| ("--root", root.as_os_str().to_owned())));
    let mut command = command_line(given, &[("--continue", continues)]);
    for word in options {
        command += &format!(" {}", quote(OsStr::new(word)));
    }
    command
}

/// The command that goes on with a build; `continues` begins a new run where the last one failed.
pub(super) fn resume_command(
    arguments: &RunArguments,
    spec: &Path,
    env: &CliEnv,
    continues: bool,
) -> String {
    let path = |path: &Path| path.as_os_str().to_owned();
    let mut options = vec![("--spec", path(spec))];
    options.extend(env.named_root.as_deref().map(|root| ("--root", path(root))));
    options.extend(build_options(arguments));
    options.retain(|(name, _)| !continues || *name != "--replay");
    let mut flags = vec![
        ("--continue", continues),
        ("--keep-best", arguments.keep_best),
    ];
    flags.extend(output_flags(arguments));
    command_line(options, &flags)
}

/// A command about an attempt, such as `orchestrator restore 2`; `run_id` names an older run.
pub(super) fn attempt_command(
    word: &str,
    number: u32,
    run_id: Option<&str>,
    root: Option<&Path>,
) -> String {
    let mut command = format!("orchestrator {word} {number}");
    if let Some(run_id) = run_id {
        command += &format!(" --run {run_id}");
    }
    if let Some(root) = root {
        command += &format!(" {}", option("--root", root.as_os_str()));
    }
    command
}

/// What the command that goes on with a workflow has to give.
#[derive(Debug, Default)]
pub(super) struct ResumeNeeds {
    /// The agents whose questions are open.
    pub asking: Vec<String>,
    /// The budget that is used up, in USD.
    pub budget: Option<f64>,
}

/// The command that goes on with a workflow.
pub(super) fn resume_workflow_command(
    arguments: &RunArguments,
    workflow: &Path,
    env: &CliEnv,
    needs: &ResumeNeeds,
) -> String {
    let flags = &arguments.workflow_flags;
    let path = |path: &Path| path.as_os_str().to_owned();
    let mut options: Vec<(&str, OsString)> = vec![("--workflow", path(workflow))];
    let mut add = |name, value: Option<OsString>| options.extend(value.map(|value| (name, value)));
    add("--root", env.named_root.as_deref().map(path));
    add("--input", flags.input.clone().map(Into::into));
    add("--project-dir", flags.project_dir.as_deref().map(path));
    let higher = needs.budget.map(|used_up| 2.0 * used_up);
    let budget = higher.or(arguments.budget);
    add("--budget", budget.map(|usd| usd.to_string().into()));
    for price in &flags.price {
        add("--price", Some(price.text.clone().into()));
    }
    add("--jobs", flags.jobs.map(|jobs| jobs.to_string().into()));
    add(
        "--timeout",
        flags.timeout.map(|time| time.to_string().into()),
    );
    for read in &flags.read {
        add("--read", Some(path(read)));
    }
    for name in &flags.keep_env {
        add("--keep-env", Some(name.into()));
    }
    add("--provider", arguments.provider.clone().map(Into::into));
    add("--model", arguments.model.clone().map(Into::into));
    add("--replay", arguments.replay.as_deref().map(path));
    match needs.asking.as_slice() {
        [] => {}
        [_] => add("--answer", Some("TEXT".into())),
        [first, ..] => add("--answer", Some(format!("{first}=TEXT").into())),
    }
    let mut words = vec![("--network", flags.network)];
    words.extend(output_flags(arguments));
    command_line(options, &words)
}

/// The command that goes on with the workflow that a root has, as `state.json` names it.
pub(super) fn resume_saved_workflow(state: &WorkflowState, env: &CliEnv) -> Option<String> {
    if state.state == WorkflowPhase::Success || state.is_corrupt() {
        return None;
    }
    let root = env.named_root.as_deref();
    let workflow = root.unwrap_or(Path::new("")).join(&state.workflow);
    let mut options = vec![("--workflow", workflow.into_os_string())];
    options.extend(root.map(|root| ("--root", root.as_os_str().to_owned())));
    Some(command_line(options, &[]))
}

fn output_flags(arguments: &RunArguments) -> [(&'static str, bool); 4] {
    [
        ("--debug", arguments.debug),
        ("--quiet", arguments.quiet),
        ("--json", arguments.json),
        ("--no-sandbox", arguments.no_sandbox),
    ]
}

fn command_line<'a>(
    options: impl IntoIterator<Item = (&'a str, OsString)>,
    flags: &[(&str, bool)],
) -> String {
    let options = options.into_iter();
    let options = options.map(|(name, value)| option(name, &value));
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
