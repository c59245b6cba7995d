//! What the model calls of a run have used and may have used, as the log says it.
//!
//! A request counts with its worst case from the line that announces it until its end is known: this is the reservation
//! that the budget of a run with several agents goes by. A request whose end was never recorded stays counted.

use std::collections::HashMap;

use crate::events::{Charge, Event};
use crate::llm::{Answer, TokenUsage};
use crate::state::run::UsageTotals;

use serde::Deserialize;

/// The `error_type` of an attempt at the model that gave no answer.
pub(crate) const MODEL_ERROR: &str = "model";
/// The `error_type` of a round of attempts that gave no answer, where there are several.
pub(crate) const STEP_ERROR: &str = "step";

/// Tokens and USD that count against the budget beside the recorded answers.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ChargeTotal {
    pub tokens: u64,
    pub usd: f64,
}

impl ChargeTotal {
    fn add(&mut self, charge: Charge) {
        self.tokens = self.tokens.saturating_add(charge.tokens);
        self.usd += charge.cost_usd.unwrap_or(0.0);
    }
}

/// The usage of a run so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UsageLog {
    /// The recorded answers; `None` before the first one.
    answers: Option<UsageTotals>,
    /// Requests that broke off.
    lost: Vec<Charge>,
    /// Answers that report no usage count as their worst case.
    uncounted: ChargeTotal,
    /// The worst case of each agent's last request, and whether it is under way.
    requests: HashMap<String, (Charge, bool)>,
    /// USD that `state.json` counts as lost although the log does not have it.
    least_lost_usd: f64,
}

impl UsageLog {
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::WorkflowStarted { .. } => self.end_process(),
            Event::ModelRequested {
                agent_id, worst, ..
            } => self.request(agent_id, *worst),
            Event::ModelRetried { agent_id, .. } => self.retry(agent_id),
            Event::ErrorOccurred {
                agent_id,
                error_type,
                charge,
                ..
            } if error_type == MODEL_ERROR => self.fail(agent_id, *charge),
            Event::ModelAnswered {
                agent_id,
                answer,
                cost_usd,
                ..
            } => {
                let answer = answer
                    .as_ref()
                    .and_then(|value| Answer::deserialize(value).ok());
                self.answer(agent_id, answer.as_ref(), *cost_usd);
            }
            _ => {}
        }
    }

    /// The process has ended: whatever was under way has broken off.
    pub(crate) fn end_process(&mut self) {
        let agents: Vec<String> = self.requests.keys().cloned().collect();
        agents.iter().for_each(|agent| self.break_off(agent));
    }

    /// A request is sent.
    pub(crate) fn request(&mut self, agent_id: &str, worst: Charge) {
        self.break_off(agent_id);
        self.requests.insert(agent_id.to_owned(), (worst, true));
    }

    /// The last request of an agent is sent again.
    pub(crate) fn retry(&mut self, agent_id: &str) {
        self.break_off(agent_id);
        if let Some((_, is_open)) = self.requests.get_mut(agent_id) {
            *is_open = true;
        }
    }

    /// The request of an agent ended without an answer.
    pub(crate) fn fail(&mut self, agent_id: &str, charge: Option<Charge>) {
        self.close(agent_id);
        self.lost.extend(charge);
    }

    /// The request of an agent was answered, or refused for good.
    pub(crate) fn answer(
        &mut self,
        agent_id: &str,
        answer: Option<&Answer>,
        cost_usd: Option<f64>,
    ) {
        let worst = self.close(agent_id);
        if let Some(answer) = answer {
            self.add_answer(answer, cost_usd, worst.unwrap_or_default());
        }
    }

    fn add_answer(&mut self, answer: &Answer, cost_usd: Option<f64>, worst: Charge) {
        // A server that reports no usage must not make the budget meaningless.
        if answer.usage == TokenUsage::default() {
            self.uncounted.add(worst);
        }
        let (input, output) = (answer.usage.all_input(), answer.usage.output);
        let totals = self.answers.get_or_insert(UsageTotals::none(true));
        totals.add(answer.calls(), input, output, cost_usd);
    }

    /// Ends the request of an agent that is under way; returns the worst case of its last one.
    fn close(&mut self, agent_id: &str) -> Option<Charge> {
        let (worst, is_open) = self.requests.get_mut(agent_id)?;
        *is_open = false;
        Some(*worst)
    }

    /// A request that was under way when the log went on without its end counts with its worst case.
    fn break_off(&mut self, agent_id: &str) {
        if let Some((worst, is_open)) = self.requests.get_mut(agent_id)
            && std::mem::take(is_open)
        {
            self.lost.push(*worst);
        }
    }

    /// Takes over what `state.json` knows where the log knows less: it was damaged or is gone.
    pub fn raise_to(&mut self, saved: &UsageTotals) {
        let known = self.answers.map_or(0, |answers| answers.llm_calls);
        if known < saved.llm_calls {
            self.answers = Some(*saved);
        }
        self.least_lost_usd = saved.lost_usd.unwrap_or_default();
    }

    /// The totals as `state.json` has them; costs are unknown where the price is.
    pub fn totals(&self, price_is_known: bool) -> UsageTotals {
        let lost = self
            .lost_usd()
            .map(|lost| lost.max(self.least_lost_usd))
            .filter(|_| price_is_known);
        UsageTotals {
            lost_usd: lost,
            ..self.answers.unwrap_or(UsageTotals::none(price_is_known))
        }
    }

    /// What requests that broke off may have cost, in USD; `None` where the price of one is unknown.
    pub fn lost_usd(&self) -> Option<f64> {
        let mut lost = self.lost.iter();
        lost.try_fold(0.0, |sum, charge| Some(sum + charge.cost_usd?))
    }

    /// The worst cases of requests that are under way.
    pub(crate) fn open_charges(&self) -> ChargeTotal {
        let mut open = ChargeTotal::default();
        let requests = self.requests.values().filter(|(_, is_open)| *is_open);
        requests.for_each(|(worst, _)| open.add(*worst));
        open
    }

    /// What counts beside the recorded answers: requests that broke off or are under way, and answers without usage.
    pub fn charges(&self) -> ChargeTotal {
        let mut charges = self.uncounted;
        let open = self.requests.values().filter(|(_, is_open)| *is_open);
        let mut lost = ChargeTotal::default();
        let all = self
            .lost
            .iter()
            .copied()
            .chain(open.map(|(worst, _)| *worst));
        all.for_each(|charge| lost.add(charge));
        charges.tokens = charges.tokens.saturating_add(lost.tokens);
        charges.usd += lost.usd.max(self.least_lost_usd);
        charges
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::events::{ConversationScope, RequestPlace};
    use crate::llm::{ContentBlock, StopReason};

    fn place(turn: u32) -> RequestPlace {
        ConversationScope::Visit { visit: 1 }.turn(turn)
    }

    fn charge(tokens: u64) -> Charge {
        Charge {
            tokens,
            cost_usd: Some(tokens as f64),
        }
    }

    fn requested(agent: &str, worst: u64) -> Event {
        Event::ModelRequested {
            agent_id: agent.into(),
            place: place(0),
            provider: "anthropic".into(),
            model: "m".into(),
            hash: String::new(),
            worst: charge(worst),
            continues: None,
            objection: None,
            request: Value::Null,
        }
    }

    fn failed(charge: Option<Charge>) -> Event {
        Event::ErrorOccurred {
            agent_id: "main".into(),
            error_type: MODEL_ERROR.into(),
            error_message: String::new(),
            current_state: String::new(),
            is_retryable: true,
            retry_count: 1,
            max_retries: 4,
            charge,
        }
    }

    fn answered(agent: &str, input: u64) -> Event {
        let answer = Answer {
            content: vec![ContentBlock::text("x")],
            stop: StopReason::EndTurn,
            usage: TokenUsage {
                input,
                ..TokenUsage::default()
            },
            model: String::new(),
            request_id: None,
            bill: None,
        };
        Event::ModelAnswered {
            agent_id: agent.into(),
            place: place(0),
            hash: String::new(),
            cost_usd: Some(0.5),
            duration_ms: 1,
            answer: serde_json::to_value(answer).ok(),
            error: None,
        }
    }

    fn fold(events: &[Event]) -> UsageLog {
        let mut usage = UsageLog::default();
        events.iter().for_each(|event| usage.apply(event));
        usage
    }

    #[test]
    fn answers_are_added_up() {
        let usage = fold(&[
            requested("main", 100),
            answered("main", 7),
            requested("main", 100),
            answered("main", 8),
        ]);
        let totals = usage.totals(true);
        assert_eq!(
            (totals.llm_calls, totals.input_tokens, totals.cost_usd),
            (2, 15, Some(1.0))
        );
        assert_eq!(usage.charges().tokens, 0);
    }

    #[test]
    fn an_answer_without_usage_counts_as_the_worst_case() {
        let usage = fold(&[requested("main", 100), answered("main", 0)]);
        assert_eq!(usage.charges().tokens, 100);
        assert_eq!(usage.lost_usd().map(f64::to_bits), Some(0));
    }

    #[test]
    fn a_request_without_a_recorded_end_is_charged() {
        let retried = || Event::ModelRetried {
            agent_id: "main".into(),
            place: place(0),
            attempt: 2,
        };
        let ask = || requested("main", 100);
        let answer = || answered("main", 1);
        let cases = [
            (vec![ask()], 100),
            (vec![ask(), ask()], 200),
            (vec![ask(), failed(None), retried(), answer()], 0),
            (
                vec![ask(), failed(Some(charge(30))), retried(), answer()],
                30,
            ),
            (vec![ask(), failed(Some(charge(30))), retried()], 130),
            (vec![ask(), failed(None)], 0),
        ];
        for (events, tokens) in cases {
            assert_eq!(fold(&events).charges().tokens, tokens, "{events:?}");
        }
        let unpriced = Charge {
            tokens: 7,
            cost_usd: None,
        };
        let usage = fold(&[requested("main", 100), failed(Some(unpriced))]);
        assert_eq!(usage.lost_usd(), None);
    }

    #[test]
    fn requests_of_several_agents_are_reserved_at_once() {
        let mut usage = fold(&[requested("a", 100), requested("b", 50)]);
        assert_eq!(usage.charges().tokens, 150);
        usage.apply(&answered("a", 3));
        assert_eq!(usage.charges().tokens, 50);
        assert_eq!(usage.totals(true).input_tokens, 3);
    }

    #[test]
    fn state_json_counts_where_the_log_knows_less() {
        let saved = UsageTotals {
            llm_calls: 3,
            input_tokens: 9,
            lost_usd: Some(2.0),
            ..UsageTotals::none(true)
        };
        let mut usage = fold(&[requested("main", 1), answered("main", 7)]);
        usage.raise_to(&saved);
        assert_eq!(usage.totals(true), saved);
        assert_eq!(usage.charges().usd, 2.0);
    }
}
