//! Requests in the order in which they were read. Interrupts and restarts may take effect before it is their turn.

use std::collections::{BTreeMap, VecDeque};

use crate::environments::registry::UrgentAction;

/// A request that is answered in its turn.
pub(super) trait OrderedRequest {
    /// The environment that it is for.
    fn environment(&self) -> Option<&str>;

    /// What it does at once to a command that is running.
    fn urgent(&self) -> Option<UrgentAction>;
}

/// A request that was read; `is_done`: it was urgent and took effect at once.
#[derive(Debug)]
pub(super) struct QueuedItem<R> {
    pub request: R,
    pub is_done: bool,
}

impl<R: OrderedRequest> QueuedItem<R> {
    /// Whether it is for this environment and has not taken effect.
    fn waits_for(&self, environment: &str) -> bool {
        !self.is_done && self.request.environment() == Some(environment)
    }
}

/// Requests that were read and not answered yet.
#[derive(Debug)]
pub(super) struct RequestOrder<R> {
    items: VecDeque<QueuedItem<R>>,
    /// How many items were taken out.
    taken: usize,
    /// Interrupts and restarts that have not taken effect, by how many items were read before them.
    urgent: VecDeque<usize>,
    /// How many had been read when the last command of an environment began.
    begun: BTreeMap<String, usize>,
}

impl<R> Default for RequestOrder<R> {
    fn default() -> RequestOrder<R> {
        RequestOrder {
            items: VecDeque::new(),
            taken: 0,
            urgent: VecDeque::new(),
            begun: BTreeMap::new(),
        }
    }
}

impl<R: OrderedRequest> RequestOrder<R> {
    pub(super) fn add(&mut self, request: R) {
        if request.urgent().is_some() {
            self.urgent.push_back(self.taken + self.items.len());
        }
        self.items.push_back(QueuedItem {
            request,
            is_done: false,
        });
    }

    /// Takes the next item.
    pub(super) fn take(&mut self) -> Option<QueuedItem<R>> {
        let item = self.items.pop_front()?;
        self.taken += 1;
        while self
            .urgent
            .front()
            .is_some_and(|number| *number < self.taken)
        {
            self.urgent.pop_front();
        }
        Some(item)
    }

    /// The requests that wait, to be changed in their places.
    pub(super) fn waiting(&mut self) -> impl Iterator<Item = &mut R> {
        self.items.iter_mut().map(|item| &mut item.request)
    }

    /// How many requests have been read.
    pub(super) fn read_count(&self) -> usize {
        self.taken + self.items.len()
    }

    /// Records that a command of this environment has begun when so many requests had been read.
    pub(super) fn begin(&mut self, environment: &str, read: usize) {
        match self.begun.get_mut(environment) {
            Some(begun) => *begun = read,
            None => drop(self.begun.insert(environment.to_owned(), read)),
        }
    }

    /// Takes the action for the command that runs in this environment: an interrupt or restart that is the next request
    /// for it, or that was read after the command began, even if other requests for it come first.
    pub(super) fn take_urgent(&mut self, environment: &str) -> UrgentAction {
        let RequestOrder {
            items,
            taken,
            urgent,
            begun,
        } = self;
        let begun = begun.get(environment).copied().unwrap_or_default();
        let is_for_it = |item: &QueuedItem<R>| item.waits_for(environment);
        let found = urgent.iter().position(|number| {
            let index = *number - *taken;
            items.get(index).is_some_and(is_for_it)
                && (begun <= *number || !items.range(..index).any(is_for_it))
        });
        let number = found.and_then(|found| urgent.remove(found));
        let Some(item) = number.and_then(|number| items.get_mut(number - *taken)) else {
            return UrgentAction::Nothing;
        };
        item.is_done = true;
        item.request.urgent().unwrap_or(UrgentAction::Nothing)
    }
}
