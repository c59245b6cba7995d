//! Whether a model can be asked: keys, addresses and client programs. A key itself is never shown.

use serde_json::{Value, json};

use crate::cli::doctor::obstacle::Obstacle;
use crate::cli::env::CliEnv;
use crate::cli::run_config::{provider_key, provider_program};
use crate::llm::provider::{Provider, ProviderFacts};

pub(super) struct ProviderState {
    pub(super) name: &'static str,
    pub(super) base_url: String,
    pub(super) key_variable: Option<&'static str>,
    pub(super) is_key_set: bool,
    /// What is missing, and what to type.
    pub(super) problem: Option<Obstacle>,
}

impl ProviderState {
    pub(super) fn find_all(env: &CliEnv) -> Vec<ProviderState> {
        let all = Provider::ALL.iter();
        all.map(|provider| ProviderState::find(provider.facts(), env))
            .collect()
    }

    fn find(facts: &'static ProviderFacts, env: &CliEnv) -> ProviderState {
        let named = env.text(facts.base_url_variable);
        let key = provider_key(facts, named.as_deref(), env).map(drop);
        let workspace = env.root.join("workspace");
        let program = provider_program(facts, &workspace, env).map(drop);
        let address = named.unwrap_or_else(|| facts.default_base_url.to_owned());
        ProviderState {
            name: facts.name,
            base_url: without_user(&address),
            key_variable: facts.key_variable,
            is_key_set: facts
                .key_variable
                .is_some_and(|variable| env.text(variable).is_some()),
            problem: key.and(program).err().map(|error| Obstacle::of(&error)),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "ready": self.problem.is_none(),
            "key_variable": self.key_variable,
            "key_set": self.key_variable.map(|_| self.is_key_set),
            "base_url": self.base_url,
            "problem": self.problem.as_ref().map(|problem| &problem.message),
            "help": self.problem.as_ref().map(|problem| &problem.help),
        })
    }
}

/// What prevents every run with a model: no provider can be asked.
pub(super) fn obstacle(all: &[ProviderState]) -> Option<Obstacle> {
    let is_any_ready = all.iter().any(|provider| provider.problem.is_none());
    let first = all.iter().find_map(|provider| provider.problem.as_ref());
    let help = &first.filter(|_| !is_any_ready)?.help;
    Some(Obstacle {
        message: "no provider can be asked".into(),
        help: format!(
            "{help}, or use a model on this machine: export OPENAI_BASE_URL=http://localhost:11434/v1"
        ),
    })
}

/// An address without the name and password that it may contain.
fn without_user(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else {
        return address.to_owned();
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(end);
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    let path = path.split(['?', '#']).next().unwrap_or_default();
    format!("{scheme}://{host}{path}")
}

#[cfg(test)]
mod tests {
    use super::without_user;

    #[test]
    fn an_address_is_shown_without_user_and_query() {
        for (address, shown) in [
            ("https://api.example.com/v1", "https://api.example.com/v1"),
            ("http://me:secret@host:8/v1?key=x#y", "http://host:8/v1"),
            ("http://a@b@c", "http://c"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(without_user(address), shown);
        }
    }
}
