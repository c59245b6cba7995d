//! What a run has spent so far, against its budget.

use serde_json::Value;

use crate::events::{BudgetLimits, Event};
use crate::observers::event_text::{money, money_limit};

/// The spend of a run, as far as its events say.
#[derive(Default)]
pub(super) struct LiveSpend {
    budget: BudgetLimits,
    /// Whether a model was asked; without one nothing is spent.
    has_asked: bool,
    /// `None` if the price is unknown, or what was spent before this command is not known yet.
    usd: Option<f64>,
    /// `None` if what was used before this command is not known.
    tokens: Option<u64>,
}

impl LiveSpend {
    pub(super) fn update(&mut self, event: &Event) {
        match event {
            Event::WorkflowStarted {
                budget, resumed, ..
            } => {
                self.budget = budget.unwrap_or_default();
                let is_known = !resumed;
                self.usd = self.usd.or(is_known.then_some(0.0));
                self.tokens = self.tokens.or(is_known.then_some(0));
            }
            // Agents report sums concurrently: the highest is the newest.
            Event::StateCompleted {
                total_cost_usd: Some(total),
                ..
            } => self.usd = Some(self.usd.unwrap_or(0.0).max(*total)),
            Event::ModelRequested { .. } => self.has_asked = true,
            Event::ModelAnswered {
                cost_usd, answer, ..
            } => {
                self.usd = self.usd.map(|sum| sum + cost_usd.unwrap_or(0.0));
                let used = answer.as_ref().map_or(0, used_tokens);
                self.tokens = self.tokens.map(|sum| sum + used);
            }
            _ => {}
        }
    }

    /// Such as `$0.0123 of $1.00`, or with another word `$0.0123/$1.00`. Without a budget nothing is said of nothing, nor
    /// before a model was asked.
    pub(super) fn text(&self, of: &str) -> Option<String> {
        let is_some = self.has_asked || self.usd.is_some_and(|usd| 0.0 < usd);
        let limits = is_some.then_some(&self.budget);
        let BudgetLimits { usd, tokens } = limits.copied().unwrap_or_default();
        match (usd, tokens) {
            (Some(limit), _) => Some(format!("{}{of}{}", money(self.usd?), money_limit(limit))),
            (None, Some(limit)) => Some(format!("{}{of}{limit} tokens", self.tokens?)),
            (None, None) => self.usd.filter(|usd| 0.0 < *usd).map(money),
        }
    }
}

/// All tokens of an answer.
fn used_tokens(answer: &Value) -> u64 {
    let counts = answer["usage"].as_object().into_iter().flatten();
    counts.filter_map(|(_, count)| count.as_u64()).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_kinds_of_tokens_count() {
        let usage = json!({"input": 5, "cache_write": 1, "cache_read": 2, "output": 3});
        assert_eq!(used_tokens(&json!({"usage": usage})), 11);
        assert_eq!(used_tokens(&json!({})), 0);
    }

    #[test]
    fn the_spend_is_said_against_the_budget() {
        let check = |usd: Option<f64>, tokens: Option<u64>, expected: Option<&str>| {
            let spend = LiveSpend {
                budget: BudgetLimits { usd, tokens },
                has_asked: true,
                usd: Some(0.0),
                tokens: Some(7),
            };
            assert_eq!(spend.text(" of ").as_deref(), expected);
        };
        check(Some(1.0), Some(100), Some("$0.0000 of $1.00"));
        check(None, Some(100), Some("7 of 100 tokens"));
        check(None, None, None);
    }
}
