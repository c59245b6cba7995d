//! The budget as a promise: before a request is sent, the worst it can cost must fit what is left.

use crate::build::log_state::ChargeTotal;
use crate::build::spec::BudgetSpec;
use crate::error::{Error, Result};
use crate::events::Charge;
use crate::llm::endpoint::BYTES_PER_TOKEN;
use crate::llm::price::Price;
use crate::llm::{Answer, Spent, TokenUsage};
use crate::state::reason::Reason;
use crate::state::run::UsageTotals;

/// Counts what was spent and what may have been.
#[derive(Debug)]
pub struct Budget {
    budget: BudgetSpec,
    price: Option<Price>,
    charges: ChargeTotal,
}

impl Budget {
    /// Returns a ledger; `charges` are those of earlier, broken-off requests.
    pub fn new(budget: BudgetSpec, price: Option<Price>, charges: ChargeTotal) -> Budget {
        Budget {
            budget,
            price,
            charges,
        }
    }

    /// Returns what an answer cost, where the price is known or the provider has said it.
    pub fn cost(&self, answer: &Answer) -> Option<f64> {
        answer
            .bill
            .map_or_else(|| self.price_of(&answer.usage), |bill| bill.cost_usd)
    }

    fn price_of(&self, usage: &TokenUsage) -> Option<f64> {
        self.price.map(|price| price.cost(usage))
    }

    /// Returns the most that a request can cost: its bytes / 3 as input, and all the output it may have.
    pub fn worst(&self, body_bytes: usize, max_tokens: u32) -> Charge {
        let input = (body_bytes as u64).div_ceil(BYTES_PER_TOKEN);
        let output = u64::from(max_tokens);
        Charge {
            tokens: input + output,
            cost_usd: self.price.map(|price| price.worst(input, output)),
        }
    }

    /// Returns what a broken-off request is counted as.
    pub fn charge(&self, spent: Spent, worst: Charge) -> Option<Charge> {
        match spent {
            Spent::Nothing => None,
            Spent::Unknown => Some(worst),
            Spent::Shown(usage) => Some(Charge {
                tokens: usage.all(),
                cost_usd: self.price_of(&usage),
            }),
            Spent::Billed(usage, cost) => Some(Charge {
                tokens: usage.all(),
                cost_usd: Some(cost),
            }),
        }
    }

    /// Counts a broken-off request.
    pub fn add(&mut self, charge: Charge) {
        self.charges.add(charge);
    }

    /// Returns the USD that are left for a provider that keeps to a limit by itself, nothing where there is no limit;
    /// fails the run where the budget is used up.
    pub fn left(&self, spent: &UsageTotals) -> Result<Option<f64>> {
        let (tokens, usd) = self.used(spent);
        let is_over = self.budget.tokens.is_some_and(|limit| limit <= tokens);
        if is_over || self.budget.usd.is_some_and(|limit| limit <= usd) {
            let sum =
                format!("budget: {tokens} tokens and {usd:.4} USD are used, and nothing is left");
            return Err(Error::Failed(Reason::Budget, sum));
        }
        Ok(self.budget.usd.map(|limit| limit - usd))
    }

    /// Promises that the worst case fits, or fails the run with the sum.
    pub fn reserve(&self, worst: Charge, spent: &UsageTotals) -> Result<()> {
        let over = |sum: String| Err(Error::Failed(Reason::Budget, sum));
        let (tokens, usd) = self.used(spent);
        if let Some(limit) = self.budget.tokens
            && tokens.saturating_add(worst.tokens) > limit
        {
            return over(format!(
                "budget: {tokens} of {limit} tokens are used, and the next request may need {} more",
                worst.tokens
            ));
        }
        let next = worst.cost_usd.unwrap_or(0.0);
        match self.budget.usd {
            Some(limit) if usd + next > limit => over(format!(
                "budget: {usd:.4} of {limit:.4} USD are used, and the next request may cost {next:.4} more"
            )),
            _ => Ok(()),
        }
    }

    /// Tokens and USD that count, those of broken-off requests too.
    fn used(&self, spent: &UsageTotals) -> (u64, f64) {
        let tokens = spent
            .input_tokens
            .saturating_add(spent.output_tokens)
            .saturating_add(self.charges.tokens);
        // Answers from before a price was given count with it, at the most that they can have cost.
        let unpriced = || {
            self.price.map_or(0.0, |price| {
                price.worst(spent.input_tokens, spent.output_tokens)
            })
        };
        (
            tokens,
            spent.cost_usd.unwrap_or_else(unpriced) + self.charges.usd,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(usd: Option<f64>, tokens: Option<u64>) -> Budget {
        Budget::new(
            BudgetSpec { usd, tokens },
            Some(Price::given(3.0, 15.0)),
            ChargeTotal::default(),
        )
    }

    fn spent(input_tokens: u64, cost_usd: f64) -> UsageTotals {
        UsageTotals {
            llm_calls: 1,
            input_tokens,
            cost_usd: Some(cost_usd),
            ..UsageTotals::none(true)
        }
    }

    #[test]
    fn the_worst_case_must_fit() {
        let worst = Charge {
            tokens: 100,
            cost_usd: Some(0.5),
        };
        assert!(
            budget(None, None)
                .reserve(worst, &spent(1 << 40, 1e9))
                .is_ok()
        );
        assert!(
            budget(None, Some(300))
                .reserve(worst, &spent(200, 0.0))
                .is_ok()
        );
        assert!(
            budget(None, Some(300))
                .reserve(worst, &spent(201, 0.0))
                .is_err()
        );
        assert!(
            budget(Some(1.0), None)
                .reserve(worst, &spent(0, 0.5))
                .is_ok()
        );
        let error = budget(Some(1.0), None)
            .reserve(worst, &spent(0, 0.51))
            .unwrap_err();
        assert_eq!(error.reason(), Reason::Budget);
        assert!(error.to_string().contains("budget"), "{error}");
    }

    #[test]
    fn broken_off_requests_count() {
        let mut budget = budget(None, Some(300));
        let worst = budget.worst(300, 50);
        assert_eq!(worst.tokens, 150);
        let shown = TokenUsage {
            input: 10,
            output: 5,
            ..TokenUsage::default()
        };
        assert_eq!(budget.charge(Spent::Nothing, worst), None);
        assert_eq!(budget.charge(Spent::Unknown, worst), Some(worst));
        assert_eq!(
            budget
                .charge(Spent::Shown(shown), worst)
                .map(|charge| charge.tokens),
            Some(15)
        );
        budget.add(worst);
        assert!(budget.reserve(worst, &spent(0, 0.0)).is_ok());
        assert!(budget.reserve(worst, &spent(1, 0.0)).is_err());
    }

    #[test]
    fn answers_from_before_the_price_was_known_count_with_it() {
        let before = UsageTotals {
            cost_usd: None,
            ..spent(1_000_000, 0.0)
        };
        let next = Charge {
            tokens: 1,
            cost_usd: Some(0.01),
        };
        assert!(budget(Some(3.0), None).reserve(next, &before).is_err());
        assert!(budget(Some(4.0), None).reserve(next, &before).is_ok());
    }

    #[test]
    fn who_keeps_to_a_limit_gets_what_is_left() {
        assert_eq!(budget(None, None).left(&spent(1 << 40, 1e9)).unwrap(), None);
        assert_eq!(
            budget(Some(1.0), Some(300))
                .left(&spent(299, 0.75))
                .unwrap(),
            Some(0.25)
        );
        assert_eq!(
            budget(Some(1.0), None)
                .left(&spent(0, 1.0))
                .unwrap_err()
                .reason(),
            Reason::Budget
        );
        assert_eq!(
            budget(None, Some(300))
                .left(&spent(300, 0.0))
                .unwrap_err()
                .reason(),
            Reason::Budget
        );
    }
}
