//! The environment of `claude`: of the caller's variables only what it needs for its login and the network.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};

/// Programs, locale, login, network.
const NAMES: &str = "
    HOME PATH USER LOGNAME LANG LC_ALL LC_CTYPE TZ TMPDIR XDG_CONFIG_HOME
    SSL_CERT_FILE SSL_CERT_DIR NODE_EXTRA_CA_CERTS HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY CLOUD_ML_REGION";
const OWN_PREFIXES: [&str; 2] = ["ANTHROPIC_", "CLAUDE_"];

/// The variable that makes the program use a cloud instead of the provider, and the prefixes of that cloud's login.
const CLOUDS: [(&str, &[&str]); 3] = [
    ("CLAUDE_CODE_USE_BEDROCK", &["AWS_"]),
    (
        "CLAUDE_CODE_USE_VERTEX",
        &["GOOGLE_", "GCLOUD_", "VERTEX_", "CLOUDSDK_"],
    ),
    ("CLAUDE_CODE_USE_FOUNDRY", &["AZURE_"]),
];

/// Set by an outer session of the program for its children; a new session must not inherit them.
const OUTER_SESSION: [&str; 5] = [
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SESSION_ID",
    "CLAUDE_CODE_CHILD_SESSION",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_EXECPATH",
];

/// Returns the variables of the caller that the program gets.
pub(in crate::llm) fn passed_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    passed(variables, |name| {
        let upper = name.to_uppercase();
        NAMES
            .split_whitespace()
            .any(|known| known == name || known == upper)
    })
}

/// Returns the variables of the caller that the program logs in with.
pub(in crate::llm) fn login_variables(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    passed(variables, |_| false)
}

/// The variables of the login, and others by their names.
fn passed(
    variables: impl IntoIterator<Item = (OsString, OsString)>,
    is_named: impl Fn(&str) -> bool,
) -> BTreeMap<OsString, OsString> {
    let caller: BTreeMap<OsString, OsString> = variables
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let clouds = CLOUDS
        .iter()
        .filter(|(switch, _)| caller.contains_key(OsStr::new(switch)));
    let prefixes: Vec<&str> = clouds
        .flat_map(|(_, prefixes)| *prefixes)
        .chain(&OWN_PREFIXES)
        .copied()
        .collect();
    let passes = |name: &OsStr| {
        let Some(name) = name.to_str() else {
            return false;
        };
        let is_its_own = prefixes.iter().any(|prefix| name.starts_with(prefix))
            && !OUTER_SESSION.contains(&name);
        is_named(name) || is_its_own
    };
    caller
        .into_iter()
        .filter(|(name, _)| passes(name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_gets_its_own_login_and_no_other() {
        let caller = [
            ("HOME", "/real"),
            ("PATH", "/usr/bin"),
            ("https_proxy", "http://p"),
            ("ANTHROPIC_API_KEY", "k"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "t"),
            ("CLAUDE_CODE_SESSION_ID", "outer"),
            ("CLAUDECODE", "1"),
            ("OPENAI_API_KEY", "k"),
            ("AWS_SECRET_ACCESS_KEY", "k"),
            ("MINE", "1"),
            ("CLAUDE_CODE_USE_VERTEX", ""),
        ];
        let names = |caller: &[(&str, &str)]| -> Vec<String> {
            let passed = passed_variables(
                caller
                    .iter()
                    .map(|(name, value)| (name.into(), value.into())),
            );
            passed
                .into_keys()
                .map(|name| name.into_string().unwrap())
                .collect()
        };
        let expected = [
            "ANTHROPIC_API_KEY",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "HOME",
            "PATH",
            "https_proxy",
        ];
        assert_eq!(names(&caller), expected);
        let with_cloud = [caller.as_slice(), &[("CLAUDE_CODE_USE_BEDROCK", "1")]].concat();
        assert!(names(&with_cloud).contains(&"AWS_SECRET_ACCESS_KEY".to_owned()));
        let login = login_variables(caller.map(|(name, value)| (name.into(), value.into())));
        let login: Vec<OsString> = login.into_keys().collect();
        assert_eq!(login, ["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"]);
    }
}
