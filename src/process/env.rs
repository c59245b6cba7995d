//! The environment variables of environments.
//!
//! They get the caller's variables except secrets, variables that change how a shell or an interpreter starts,
//! and values that make programs interactive.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

use crate::process::check_env::{CallerEnv, ChildDirs, assignments, is_toolchain_variable};

/// Values that make programs non-interactive, and keep Python from writing bytecode that a later run would trust.
const REPLACED: &str = "
    PAGER=cat GIT_PAGER=cat MANPAGER=cat EDITOR=true VISUAL=true GIT_EDITOR=true GIT_SEQUENCE_EDITOR=true
    GIT_TERMINAL_PROMPT=0 SSH_ASKPASS_REQUIRE=never TERM=dumb PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1";

/// Changes how a shell or an interpreter starts.
const STARTUP: &str = "
    BASH_ENV ENV SHELLOPTS BASHOPTS PROMPT_COMMAND PYTHONSTARTUP PYTHONINSPECT PYTHONPYCACHEPREFIX";

/// How the names of secrets end, those of model keys included.
const SECRET_ENDINGS: [&str; 4] = ["_TOKEN", "_SECRET", "_PASSWORD", "_KEY"];

/// The variables of environments. `dirs` are private directories that replace the caller's; `None` keeps the caller's.
/// Variables in `keep` pass in any case.
pub(crate) fn for_environments(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    dirs: Option<&ChildDirs<'_>>,
    keep: &[String],
) -> Vec<(OsString, OsString)> {
    let caller: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    let is_kept = |name: &OsStr| keep.iter().any(|kept| name == kept.as_str());
    let passes =
        |name: &OsStr| is_kept(name) || !(is_dropped(name) || dirs.is_some() && is_replaced(name));
    let mut all: BTreeMap<OsString, OsString> = caller
        .iter()
        .filter(|(name, _)| passes(name))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    all.extend(assignments(REPLACED, |value| value.into()));
    all.entry("MPLBACKEND".into())
        .or_insert_with(|| "Agg".into());
    if let Some(dirs) = dirs {
        let base = CallerEnv::new(caller);
        all.retain(|name, _| is_kept(name) || !is_toolchain_variable(name));
        let mut ours = dirs.variables();
        // A build in a project belongs there, unless the caller has moved it to a directory that is not reachable.
        ours.retain(|(name, _)| name != "CARGO_TARGET_DIR" || all.contains_key(name));
        ours.extend(base.network(dirs.network));
        ours.extend(base.toolchains(dirs));
        all.extend(ours.into_iter().filter(|(name, _)| !is_kept(name)));
        for (name, path) in [("HOME", dirs.home), ("TMPDIR", dirs.tmp)] {
            if !all.contains_key(OsStr::new(name)) {
                all.insert(name.into(), path.into());
            }
        }
    }
    all.into_iter().collect()
}

fn is_dropped(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else {
        return true;
    };
    STARTUP.split_whitespace().any(|word| word == name)
        || SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// Whether a variable names a directory or a service of the caller's session.
fn is_replaced(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    ["HOME", "TMPDIR", "SSH_AUTH_SOCK"].contains(&name.as_ref())
        || name.starts_with("XDG_")
        || name.starts_with("DBUS_")
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn environment(
        caller: &[(&str, &str)],
        private: bool,
        keep: &[&str],
    ) -> BTreeMap<String, String> {
        let [workspace, tmp, home] = ["/p", "/t", "/h"].map(Path::new);
        let dirs = ChildDirs {
            workspace,
            tmp,
            home,
            cache: None,
            network: false,
            policy: None,
        };
        let keep: Vec<String> = keep.iter().map(|name| name.to_string()).collect();
        let caller = caller
            .iter()
            .map(|(name, value)| (name.into(), value.into()));
        let all = for_environments(caller, private.then_some(&dirs), &keep);
        all.into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    #[test]
    fn the_callers_variables_pass_except_some() {
        let caller = [
            ("MINE", "1"),
            ("EDITOR", "vi"),
            ("BASH_ENV", "x"),
            ("PYTHONSTARTUP", "x"),
            ("PYTHONPYCACHEPREFIX", "x"),
            ("OPENAI_API_KEY", "x"),
            ("ANTHROPIC_API_KEY", "x"),
            ("ANTHROPIC_AUTH_TOKEN", "x"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "x"),
            ("MY_TOKEN", "x"),
            ("HOME", "/real"),
            ("XDG_RUNTIME_DIR", "/run"),
            ("RUSTUP_HOME", "/missing"),
            ("DBUS_SESSION_BUS_ADDRESS", "x"),
            ("MPLBACKEND", "Qt"),
            ("KEYBOARD", "de"),
        ];
        let all = environment(&caller, true, &[]);
        let value = |name: &str| all.get(name).map(String::as_str);
        assert_eq!(
            (value("MINE"), value("KEYBOARD"), value("MPLBACKEND")),
            (Some("1"), Some("de"), Some("Qt"))
        );
        assert_eq!(
            (value("EDITOR"), value("TERM")),
            (Some("true"), Some("dumb"))
        );
        assert_eq!((value("HOME"), value("TMPDIR")), (Some("/h"), Some("/t")));
        for dropped in [
            "BASH_ENV",
            "PYTHONSTARTUP",
            "OPENAI_API_KEY",
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "MY_TOKEN",
            "XDG_RUNTIME_DIR",
            "DBUS_SESSION_BUS_ADDRESS",
        ] {
            assert_eq!(value(dropped), None, "{dropped}");
        }
        assert_eq!(
            (value("GOCACHE"), value("CARGO_TARGET_DIR")),
            (Some("/t/cache/go-build"), None)
        );
        assert_eq!(
            (value("PYTHONPYCACHEPREFIX"), value("PIP_NO_INDEX")),
            (None, Some("1"))
        );
        assert_eq!(value("PYTHONDONTWRITEBYTECODE"), Some("1"));
        assert_eq!(
            (value("XDG_CACHE_HOME"), value("RUSTUP_HOME")),
            (Some("/h/.cache"), None)
        );
        let kept = environment(
            &caller,
            true,
            &[
                "XDG_RUNTIME_DIR",
                "GOCACHE",
                "OPENAI_API_KEY",
                "RUSTUP_HOME",
            ],
        );
        let value = |name: &str| kept.get(name).map(String::as_str);
        assert_eq!(
            (value("XDG_RUNTIME_DIR"), value("OPENAI_API_KEY")),
            (Some("/run"), Some("x"))
        );
        assert_eq!(
            (value("GOCACHE"), value("RUSTUP_HOME")),
            (None, Some("/missing"))
        );
        let kept = environment(&caller, true, &["HOME"]);
        assert_eq!(
            (
                kept.get("HOME").map(String::as_str),
                kept.get("TMPDIR").map(String::as_str)
            ),
            (Some("/real"), Some("/t"))
        );
        let kept = environment(&caller, false, &["MY_TOKEN"]);
        assert_eq!(kept.get("MY_TOKEN").map(String::as_str), Some("x"));
        assert_eq!(kept.get("HOME").map(String::as_str), Some("/real"));
        assert_eq!(
            kept.get("XDG_RUNTIME_DIR").map(String::as_str),
            Some("/run")
        );
    }
}
