//! The models of a workflow: a client per running state, kept for the next one, and what each model costs.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::conversation::budget::Budget;
use crate::conversation::model_call::RecordedModel;
use crate::conversation::replay::Replay;
use crate::llm::Model;
use crate::llm::price::{Price, context_of_model, newest_of_family};
use crate::llm::retry::{RetryPolicy, RetryRounds};
use crate::secrets::Secrets;

/// Attempts at a step, each with the client's own retries.
const STEP_ATTEMPTS: u32 = 3;
/// The context window assumed for a model that is not known, in tokens.
const SMALL_CONTEXT: u64 = 32_000;

/// Makes a client that gives up after so long without a sign of progress.
pub(crate) type Connect = Box<dyn Fn(Duration) -> Model + Send + Sync>;

/// The models that the states of a run ask.
pub(crate) struct ModelPool {
    pub(crate) settings: ModelSettings,
    pub(crate) connect: Connect,
    pub(crate) replay: Option<Arc<Replay>>,
    /// Clients that no state uses, by their timeout.
    pub(crate) idle: Mutex<HashMap<Duration, Vec<Model>>>,
}

/// What is fixed for all models of a run.
#[derive(Debug, Clone)]
pub(crate) struct ModelSettings {
    /// The provider's name in the log.
    pub(crate) provider: &'static str,
    /// Of a state that names none.
    pub(crate) model: String,
    /// Whether the provider takes `opus`, `sonnet` and `haiku` itself.
    pub(crate) takes_families: bool,
    /// `None`: no limit.
    pub(crate) budget_usd: Option<f64>,
    pub(crate) prices: Prices,
    pub(crate) retry_scale: f64,
    pub(crate) secrets: Secrets,
}

/// The prices that the user gave.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prices {
    pub(crate) by_model: HashMap<String, Price>,
    /// Of a model that is not named.
    pub(crate) other: Option<Price>,
}

impl Prices {
    /// The price of a model: the user's for it, the user's for all, the known one.
    pub(crate) fn of(&self, model: &str) -> Option<Price> {
        let named = self.by_model.get(model).copied();
        named.or(self.other).or_else(|| Price::of_model(model))
    }
}

impl ModelSettings {
    /// The model that a state asks: its own, else that of the run; a family means its newest model.
    pub(crate) fn model_of(&self, named: Option<&str>) -> String {
        let name = named.unwrap_or(&self.model);
        let newest = newest_of_family(name).filter(|_| !self.takes_families);
        newest.unwrap_or(name).to_owned()
    }
}

/// The context window of a model, in tokens.
pub(crate) fn context_tokens(model: &str) -> usize {
    let tokens = context_of_model(model).unwrap_or(SMALL_CONTEXT);
    usize::try_from(tokens).unwrap_or(usize::MAX)
}

impl ModelPool {
    /// A client for one state.
    pub(crate) fn take(&self, model: &str, idle_timeout: Duration) -> RecordedModel {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle.get_mut(&idle_timeout).and_then(Vec::pop);
        drop(idle);
        let settings = &self.settings;
        RecordedModel {
            client: kept.unwrap_or_else(|| (self.connect)(idle_timeout)),
            provider: settings.provider,
            budget: Budget {
                usd: settings.budget_usd.filter(|_| self.replay.is_none()),
                tokens: None,
                price: settings.prices.of(model),
            },
            shared_budget: None,
            policy: RetryPolicy {
                scale: settings.retry_scale,
                until: None,
                rounds: RetryRounds::Several(STEP_ATTEMPTS),
            },
            replay: self.replay.clone(),
            on_text: None,
            secrets: settings.secrets.clone(),
        }
    }

    /// Keeps a client for the next state.
    pub(crate) fn give_back(&self, model: RecordedModel, idle_timeout: Duration) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.entry(idle_timeout).or_default().push(model.client);
    }
}
