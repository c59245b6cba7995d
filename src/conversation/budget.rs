//! The budget is a promise: before a request is sent, the most that it can cost must fit what is left.
//!
//! What is used, reserved and lost follows from the log (`usage.rs`), so that several agents share one budget.

use crate::conversation::event_log::Readiness;
use crate::conversation::usage::UsageLog;
use crate::error::{Error, Result};
use crate::events::Charge;
use crate::llm::price::Price;
use crate::llm::tokens::BYTES_PER_TOKEN;
use crate::llm::{Answer, Spent, TokenUsage};
use crate::state::reason::Reason;

/// A sum in USD may exceed a limit by this much: both are rounded.
const ROUNDING: f64 = 1e-6;

/// The limits of a run and the price of its model.
#[derive(Debug, Clone, Copy, Default)]
pub struct Budget {
    pub usd: Option<f64>,
    pub tokens: Option<u64>,
    pub price: Option<Price>,
}

/// A budget that several runs share, beside their own ones.
pub(crate) trait SharedBudget: Send + Sync {
    /// Reserves what the run has used, and what its next request may cost at most, both in USD. Fails where that does
    /// not fit.
    fn reserve(&self, run_id: &str, used: f64, next: f64) -> Result<()>;
}

impl Budget {
    /// The cost of an answer, where the price is known or the provider reports it.
    pub fn cost(&self, answer: &Answer) -> Option<f64> {
        answer
            .bill
            .map_or_else(|| self.price_of(&answer.usage), |bill| bill.cost_usd)
    }

    fn price_of(&self, usage: &TokenUsage) -> Option<f64> {
        self.price.map(|price| price.cost(usage))
    }

    /// The most that a request can cost: its bytes / 3 as input, and `max_tokens` as output.
    pub fn worst(&self, body_bytes: usize, max_tokens: u32) -> Charge {
        let input = (body_bytes as u64).div_ceil(BYTES_PER_TOKEN);
        let exact_input = body_bytes as f64 / BYTES_PER_TOKEN as f64;
        let worst = |price: Price| price.worst(exact_input, f64::from(max_tokens));
        Charge {
            tokens: input + u64::from(max_tokens),
            cost_usd: self.price.map(worst),
        }
    }

    /// What a request that broke off is charged.
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

    /// The USD that are left, for a provider that has a limit of its own; `None` without a limit. Fails where the
    /// budget is used up.
    pub fn left(&self, usage: &UsageLog) -> Result<Option<f64>> {
        let (tokens, usd) = self.used(usage);
        let is_over = self.tokens.is_some_and(|limit| limit <= tokens);
        if is_over || self.usd.is_some_and(|limit| limit <= usd) {
            let sum =
                format!("budget: {tokens} tokens and {usd:.4} USD are used, and nothing is left");
            return Err(Error::Failed(Reason::Budget, sum));
        }
        Ok(self.usd.map(|limit| limit - usd))
    }

    /// Whether the worst case of a request fits. If only requests that are under way prevent it, their ends are awaited.
    pub fn readiness(&self, worst: Charge, usage: &UsageLog) -> Result<Readiness> {
        let (tokens, usd) = self.used(usage);
        let open = usage.open_charges();
        let ended = (tokens.saturating_sub(open.tokens), usd - open.usd);
        match self.fits(worst, (tokens, usd)) {
            Ok(()) => Ok(Readiness::Ready),
            Err(over) if open.tokens == 0 => Err(over),
            Err(_) => self.fits(worst, ended).map(|()| Readiness::Wait),
        }
    }

    /// Fails with the sum where the worst case does not fit beside the tokens and USD that are used.
    fn fits(&self, worst: Charge, (tokens, usd): (u64, f64)) -> Result<()> {
        let over = |sum: String| Err(Error::Failed(Reason::Budget, sum));
        if let Some(limit) = self.tokens
            && tokens.saturating_add(worst.tokens) > limit
        {
            return over(format!(
                "budget: {tokens} of {limit} tokens are used, and the next request may need {} more",
                worst.tokens
            ));
        }
        let next = worst.cost_usd.unwrap_or(0.0);
        match self.usd {
            Some(limit) if usd + next > limit + ROUNDING => over(format!(
                "budget: {usd:.4} of {limit:.4} USD are used, and the next request may cost {next:.4} more"
            )),
            _ => Ok(()),
        }
    }

    /// Tokens and USD that count: answers, requests that broke off, and requests that are under way.
    pub(crate) fn used(&self, usage: &UsageLog) -> (u64, f64) {
        let (answers, charges) = (usage.totals(true), usage.charges());
        let tokens = answers
            .input_tokens
            .saturating_add(answers.output_tokens)
            .saturating_add(charges.tokens);
        // Answers from before a price was given count with it, at the most that they can have cost.
        let unpriced = || {
            self.price.map_or(0.0, |price| {
                price.worst(answers.input_tokens as f64, answers.output_tokens as f64)
            })
        };
        (
            tokens,
            answers.cost_usd.unwrap_or_else(unpriced) + charges.usd,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::run::UsageTotals;

    fn budget(usd: Option<f64>, tokens: Option<u64>) -> Budget {
        Budget {
            usd,
            tokens,
            price: Some(Price::given(3.0, 15.0)),
        }
    }

    fn used(input_tokens: u64, cost_usd: Option<f64>, lost_usd: f64) -> UsageLog {
        let mut usage = UsageLog::default();
        usage.raise_to(&UsageTotals {
            llm_calls: 1,
            input_tokens,
            cost_usd,
            lost_usd: Some(lost_usd),
            ..UsageTotals::none(true)
        });
        usage
    }

    #[test]
    fn the_worst_case_must_fit() {
        let worst = Charge {
            tokens: 100,
            cost_usd: Some(0.5),
        };
        let fits = |budget: Budget, usage: UsageLog| budget.readiness(worst, &usage).is_ok();
        assert!(fits(budget(None, None), used(1 << 40, Some(1e9), 0.0)));
        assert!(fits(budget(None, Some(300)), used(200, Some(0.0), 0.0)));
        assert!(!fits(budget(None, Some(300)), used(201, Some(0.0), 0.0)));
        assert!(fits(budget(Some(1.0), None), used(0, Some(0.5), 0.0)));
        assert!(!fits(budget(Some(1.0), None), used(0, Some(0.25), 0.5)));
        let error = budget(Some(1.0), None)
            .readiness(worst, &used(0, Some(0.51), 0.0))
            .unwrap_err();
        assert_eq!(error.reason(), Reason::Budget);
        assert!(error.to_string().contains("budget"), "{error}");
    }

    #[test]
    fn a_broken_off_request_is_charged_by_what_is_known_of_it() {
        let budget = budget(None, Some(300));
        let worst = budget.worst(300, 50);
        assert_eq!(worst.tokens, 150);
        let shown = TokenUsage {
            input: 10,
            output: 5,
            ..TokenUsage::default()
        };
        assert_eq!(budget.charge(Spent::Nothing, worst), None);
        assert_eq!(budget.charge(Spent::Unknown, worst), Some(worst));
        let charge = budget.charge(Spent::Shown(shown), worst);
        assert_eq!(charge.map(|charge| charge.tokens), Some(15));
    }

    #[test]
    fn answers_from_before_the_price_was_known_count_with_it() {
        let before = used(1_000_000, None, 0.0);
        let next = Charge {
            tokens: 1,
            cost_usd: Some(0.01),
        };
        assert!(budget(Some(3.0), None).readiness(next, &before).is_err());
        assert!(budget(Some(4.0), None).readiness(next, &before).is_ok());
    }

    #[test]
    fn a_provider_with_a_limit_of_its_own_gets_what_is_left() {
        let left = |usd, tokens, usage: UsageLog| budget(usd, tokens).left(&usage);
        let much = used(1 << 40, Some(1e9), 0.0);
        assert_eq!(left(None, None, much).unwrap(), None);
        let some = used(299, Some(0.75), 0.0);
        assert_eq!(left(Some(1.0), Some(300), some).unwrap(), Some(0.25));
        for (usd, tokens, usage) in [
            (Some(1.0), None, used(0, Some(1.0), 0.0)),
            (None, Some(300), used(300, Some(0.0), 0.0)),
        ] {
            let error = left(usd, tokens, usage).unwrap_err();
            assert_eq!(error.reason(), Reason::Budget);
        }
    }
}
