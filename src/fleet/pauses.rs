//! When entries of a provider that does not answer are started again.

use std::collections::HashMap;
use std::time::{Duration, Instant};

const FIRST_DELAY: Duration = Duration::from_secs(60);
const LONGEST_DELAY: Duration = Duration::from_secs(15 * 60);

/// The providers that paused entries.
#[derive(Debug)]
pub(super) struct ProviderGates {
    gates: HashMap<String, Gate>,
    /// The factor of all delays.
    scale: f64,
}

#[derive(Debug)]
enum Gate {
    /// It refuses the key or the account.
    Refused,
    /// It is tried again at a time.
    ClosedUntil { at: Instant, delay: Duration },
}

/// Whether a provider can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateState {
    Open,
    OpensAt(Instant),
    Refused,
}

impl ProviderGates {
    pub(super) fn new(scale: f64) -> ProviderGates {
        ProviderGates {
            gates: HashMap::new(),
            scale,
        }
    }

    /// The provider did not answer. Entries that it paused at the same time count once.
    pub(super) fn close(&mut self, provider: &str, now: Instant) {
        let delay = match self.gates.get(provider) {
            Some(Gate::Refused) => return,
            Some(Gate::ClosedUntil { at, .. }) if now < *at => return,
            Some(Gate::ClosedUntil { delay, .. }) => (*delay * 2).min(LONGEST_DELAY),
            None => FIRST_DELAY,
        };
        let at = now + delay.mul_f64(self.scale);
        self.gates
            .insert(provider.to_owned(), Gate::ClosedUntil { at, delay });
    }

    /// The provider refuses the key or the account.
    pub(super) fn refuse(&mut self, provider: &str) {
        self.gates.insert(provider.to_owned(), Gate::Refused);
    }

    /// The provider has answered all requests of an entry.
    pub(super) fn open(&mut self, provider: &str) {
        if !matches!(self.gates.get(provider), Some(Gate::Refused)) {
            self.gates.remove(provider);
        }
    }

    pub(super) fn state(&self, provider: &str, now: Instant) -> GateState {
        match self.gates.get(provider) {
            Some(Gate::Refused) => GateState::Refused,
            Some(Gate::ClosedUntil { at, .. }) if now < *at => GateState::OpensAt(*at),
            Some(Gate::ClosedUntil { .. }) | None => GateState::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_a_quarter_of_an_hour() {
        let mut gates = ProviderGates::new(1.0);
        let mut now = Instant::now();
        assert_eq!(gates.state("p", now), GateState::Open);
        for seconds in [60, 120, 240, 480, 900, 900] {
            gates.close("p", now);
            // Another entry that was paused by the same failure.
            gates.close("p", now);
            let opens = now + Duration::from_secs(seconds);
            assert_eq!(gates.state("p", now), GateState::OpensAt(opens));
            now = opens;
            assert_eq!(gates.state("p", now), GateState::Open);
        }
        gates.open("p");
        gates.close("p", now);
        assert_eq!(gates.state("p", now), GateState::OpensAt(now + FIRST_DELAY));
        gates.refuse("p");
        gates.open("p");
        assert_eq!(gates.state("p", now + LONGEST_DELAY), GateState::Refused);
        assert_eq!(gates.state("other", now), GateState::Open);
    }
}
