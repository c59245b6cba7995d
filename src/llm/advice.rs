//! What to try after an error that mostly comes from the settings: a server that is not reached, an address without the
//! API, a model that the server does not have.

use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;

use crate::llm::http::is_loopback;
use crate::llm::http_error::one_line;
use crate::llm::price::priced_models;

/// So many models are named.
const MAX_MODELS: usize = 5;

/// The longest name of a model that is shown, in characters.
const MAX_NAME: usize = 80;

/// Servers that listen on a port of their own, and the commands that start them.
const SERVERS: [(u16, &str); 2] = [(11434, "ollama serve"), (1234, "lms server start")];

/// Returns the message of a connection that failed: where to, why, what to try. The innermost of the causes is shown.
pub(super) fn connection_message(url: Option<&Url>, causes: &[String]) -> String {
    let is_loopback = url.is_some_and(is_loopback);
    let cause = causes.last().map_or("no cause is known", |cause| {
        cause.split(" (os error ").next().unwrap_or(cause)
    });
    let host = url.and_then(Url::host_str).unwrap_or("the server");
    let port = url.and_then(Url::port_or_known_default);
    let shown_port = port.map_or_else(String::new, |port| format!(" port {port}"));
    let advice = advice_for(&causes.join(": "), is_loopback, port);
    format!("cannot connect to {host}{shown_port}: {cause}; {advice}")
}

fn advice_for(cause: &str, is_loopback: bool, port: Option<u16>) -> String {
    let cause = cause.to_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| cause.contains(word));
    let start = port.and_then(|port| SERVERS.iter().find(|(known, _)| *known == port));
    if says(&["dns", "lookup"]) {
        "check the host in base_url, and the network".into()
    } else if says(&["certificate", "corrupt message", "tls", "handshake"]) {
        "a server without TLS needs http:// in base_url, and one with a private certificate needs it in the system's store".into()
    } else if let (true, Some((_, command))) = (is_loopback, start) {
        format!("start the server (`{command}`), or set base_url to where it listens")
    } else if is_loopback {
        "start the model's server, or set base_url to where it listens".into()
    } else {
        "check base_url, the network, and the proxy if HTTPS_PROXY is set".into()
    }
}

/// Returns what to try after a path that the server does not have.
pub(super) fn advice_about_path(url: &str) -> String {
    let shown = one_line(url, 200);
    let advice = if url.contains("/v1/v1/") {
        "remove /v1 from base_url"
    } else if url.ends_with("/v1/messages") {
        "base_url mostly has no path, compare it with the server's documents"
    } else {
        "base_url mostly ends in /v1, compare it with the server's documents"
    };
    format!("; asked at {shown}: {advice}")
}

/// Returns what to try after a model that the server does not have; `listed` is the server's own list, if it gave one.
pub(super) fn advice_about_model(asked: &str, listed: Option<Vec<String>>) -> String {
    let (owner, mut names) = match listed {
        Some(names) if !names.is_empty() => ("the server has", names),
        _ => (
            "known models are",
            priced_models().map(str::to_owned).collect(),
        ),
    };
    let closeness = |name: &String| -strsim::jaro_winkler(asked, name);
    names.sort_by(|a, b| closeness(a).total_cmp(&closeness(b)).then_with(|| a.cmp(b)));
    names.dedup();
    let rest = match names.len().saturating_sub(MAX_MODELS) {
        0 => String::new(),
        rest => format!(" and {rest} more"),
    };
    let shown: Vec<String> = names
        .iter()
        .take(MAX_MODELS)
        .map(|name| one_line(name, MAX_NAME))
        .collect();
    format!(
        "; {owner} {}{rest}: set generator.model or --model",
        shown.join(", ")
    )
}

/// Returns the model that a request names.
pub(super) fn model_of_body(body: &str) -> String {
    #[derive(Deserialize)]
    struct NamedModel {
        model: String,
    }
    serde_json::from_str(body).map_or_else(|_| String::new(), |named: NamedModel| named.model)
}

/// Returns the names in a server's list of models.
pub(super) fn listed_models(body: &[u8]) -> Option<Vec<String>> {
    let parsed: Value = serde_json::from_slice(body).ok()?;
    let models = parsed["data"].as_array()?.iter();
    let names = models.filter_map(|model| model["id"].as_str());
    Some(names.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connection(url: &str, cause: &str) -> String {
        let causes: Vec<String> = cause.split(": ").map(str::to_owned).collect();
        connection_message(Url::parse(url).ok().as_ref(), &causes)
    }

    #[test]
    fn a_failed_connection_names_host_and_port_and_what_to_try() {
        for (url, cause, expected) in [
            (
                "http://127.0.0.1:11434/v1",
                "client error (Connect): tcp connect error: Connection refused (os error 111)",
                "cannot connect to 127.0.0.1 port 11434: Connection refused; start the server (`ollama serve`)",
            ),
            (
                "http://127.0.0.1:9/v1",
                "Connection refused",
                "port 9: Connection refused; start the model's server",
            ),
            (
                "https://api.example/v1",
                "dns error: failed to lookup address information",
                "cannot connect to api.example port 443: failed to lookup address information; check the host",
            ),
            (
                "https://api.example/v1",
                "received corrupt message of type InvalidContentType",
                "needs http:// in base_url",
            ),
            (
                "http://api.example/v1",
                "timed out",
                "api.example port 80: timed out; check base_url, the network",
            ),
        ] {
            let message = connection(url, cause);
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn a_wrong_path_says_what_is_likely_wrong_with_base_url() {
        for (url, expected) in [
            ("http://h/chat/completions", "base_url mostly ends in /v1"),
            ("http://h/v1/messages", "base_url mostly has no path"),
            ("http://h/v1/v1/messages", "remove /v1 from base_url"),
        ] {
            let advice = advice_about_path(url);
            assert!(
                advice.starts_with(&format!("; asked at {url}: ")),
                "{advice}"
            );
            assert!(advice.contains(expected), "{advice}");
        }
    }

    #[test]
    fn models_are_proposed_the_closest_first() {
        let listed = ["llama3.2", "qwen3:8b", "qwen3-coder:30b", "phi4", "a", "b"];
        let listed = listed.map(str::to_owned).to_vec();
        let advice = advice_about_model("qwen3-coder", Some(listed));
        assert!(
            advice.starts_with("; the server has qwen3-coder:30b, qwen3:8b, "),
            "{advice}"
        );
        assert!(
            advice.ends_with(" and 1 more: set generator.model or --model"),
            "{advice}"
        );
        for listed in [None, Some(Vec::new())] {
            let advice = advice_about_model("claude-sonet-5-5", listed);
            assert!(
                advice.starts_with("; known models are claude-sonnet-5-5, "),
                "{advice}"
            );
        }
    }

    #[test]
    fn names_of_models_are_read_from_both_forms() {
        let body = br#"{"object":"list","data":[{"id":"a"},{"id":7},{"id":"b\u001b"}]}"#;
        assert_eq!(listed_models(body).unwrap(), ["a", "b\u{1b}"]);
        assert_eq!(listed_models(b"404 page not found"), None);
        assert_eq!(model_of_body(r#"{"model":"m","stream":true}"#), "m");
        assert_eq!(model_of_body("x"), "");
        assert!(!advice_about_model("x", listed_models(body)).contains('\u{1b}'));
    }
}
