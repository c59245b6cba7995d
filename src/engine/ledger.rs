//! The budget as a promise: before a request is sent, the worst it can cost must fit what is left.

use crate::engine::memory::Charges;
use crate::engine::spec::Budget;
use crate::error::{Error, Result};
use crate::events::Charge;
use crate::llm::price::Price;
use crate::llm::{Spent, Usage};
use crate::state::reason::Reason;
use crate::state::run::Totals;

/// Counts what was spent and what may have been.
#[derive(Debug)]
pub struct Ledger {
    budget: Budget,
    price: Option<Price>,
    charges: Charges,
}

impl Ledger {
    /// Returns a ledger; `charges` are those of earlier, broken-off requests.
    pub fn new(budget: Budget, price: Option<Price>, charges: Charges) -> Ledger {
        Ledger { budget, price, charges }
    }

    /// Returns what an answer cost, where the price is known.
    pub fn cost(&self, usage: &Usage) -> Option<f64> {
        self.price.map(|price| price.cost(usage))
    }

    /// Returns the most that a request can cost: its bytes / 3 as input, and all the output it may have.
    pub fn worst(&self, body_bytes: usize, max_tokens: u32) -> Charge {
        let input = (body_bytes as u64).div_ceil(3);
        let output = u64::from(max_tokens);
        Charge { tokens: input + output, cost_usd: self.price.map(|price| price.worst(input, output)) }
    }

    /// Returns what a broken-off request is counted as.
    pub fn charge(&self, spent: Spent, worst: Charge) -> Option<Charge> {
        match spent {
            Spent::Nothing => None,
            Spent::Unknown => Some(worst),
            Spent::Shown(usage) => {
                Some(Charge { tokens: usage.all_input() + usage.output, cost_usd: self.cost(&usage) })
            }
        }
    }

    /// Counts a broken-off request.
    pub fn add(&mut self, charge: Charge) {
        self.charges.add(charge);
    }

    /// Promises that the worst case fits, or fails the run with the sum.
    pub fn promise(&self, worst: Charge, spent: &Totals) -> Result<()> {
        let over = |sum: String| Err(Error::Failed(Reason::Budget, sum));
        let used = spent.input_tokens.saturating_add(spent.output_tokens).saturating_add(self.charges.tokens);
        if let Some(limit) = self.budget.tokens
            && used.saturating_add(worst.tokens) > limit
        {
            return over(format!(
                "budget: {used} of {limit} tokens are used, and the next request may need {} more",
                worst.tokens
            ));
        }
        let used = spent.cost_usd.unwrap_or(0.0) + self.charges.usd;
        let next = worst.cost_usd.unwrap_or(0.0);
        match self.budget.usd {
            Some(limit) if used + next > limit => over(format!(
                "budget: {used:.4} of {limit:.4} USD are used, and the next request may cost {next:.4} more"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(usd: Option<f64>, tokens: Option<u64>) -> Ledger {
        Ledger::new(Budget { usd, tokens }, Some(Price::given(3.0, 15.0)), Charges::default())
    }

    fn spent(input_tokens: u64, cost_usd: f64) -> Totals {
        Totals { llm_calls: 1, input_tokens, output_tokens: 0, cost_usd: Some(cost_usd) }
    }

    #[test]
    fn the_worst_case_must_fit() {
        let worst = Charge { tokens: 100, cost_usd: Some(0.5) };
        assert!(ledger(None, None).promise(worst, &spent(1 << 40, 1e9)).is_ok());
        assert!(ledger(None, Some(300)).promise(worst, &spent(200, 0.0)).is_ok());
        assert!(ledger(None, Some(300)).promise(worst, &spent(201, 0.0)).is_err());
        assert!(ledger(Some(1.0), None).promise(worst, &spent(0, 0.5)).is_ok());
        let error = ledger(Some(1.0), None).promise(worst, &spent(0, 0.51)).unwrap_err();
        assert_eq!(error.reason(), Reason::Budget);
        assert!(error.to_string().contains("budget"), "{error}");
    }

    #[test]
    fn broken_off_requests_count() {
        let mut ledger = ledger(None, Some(300));
        let worst = ledger.worst(300, 50);
        assert_eq!(worst.tokens, 150);
        let shown = Usage { input: 10, output: 5, ..Usage::default() };
        assert_eq!(ledger.charge(Spent::Nothing, worst), None);
        assert_eq!(ledger.charge(Spent::Unknown, worst), Some(worst));
        assert_eq!(ledger.charge(Spent::Shown(shown), worst).map(|charge| charge.tokens), Some(15));
        ledger.add(worst);
        assert!(ledger.promise(worst, &spent(0, 0.0)).is_ok());
        assert!(ledger.promise(worst, &spent(1, 0.0)).is_err());
    }
}
