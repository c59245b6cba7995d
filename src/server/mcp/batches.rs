//! Batches of requests, which version 2025-03-26 of the protocol had: their answers are sent together.

use std::collections::BTreeMap;

use serde_json::Value;

/// The batches that are not answered yet.
#[derive(Debug, Default)]
pub(super) struct Batches {
    open: BTreeMap<BatchId, OpenBatch>,
    begun: BatchId,
}

pub(super) type BatchId = u64;

#[derive(Debug, Default)]
struct OpenBatch {
    /// Requests without an answer; while the batch is read, one more.
    missing: usize,
    answers: Vec<Value>,
}

impl Batches {
    /// Begins to read a batch; `leave` ends that.
    pub(super) fn begin(&mut self) -> BatchId {
        self.begun += 1;
        self.open.insert(self.begun, OpenBatch::default());
        self.enter(self.begun);
        self.begun
    }

    /// Records a request of the batch.
    pub(super) fn enter(&mut self, id: BatchId) {
        if let Some(batch) = self.open.get_mut(&id) {
            batch.missing += 1;
        }
    }

    /// Records the answer of a request, or that it gets none; returns all answers after the last one.
    pub(super) fn leave(&mut self, id: BatchId, answer: Option<Value>) -> Option<Value> {
        let batch = self.open.get_mut(&id)?;
        batch.missing -= 1;
        batch.answers.extend(answer);
        if 0 < batch.missing {
            return None;
        }
        let answers = self.open.remove(&id)?.answers;
        (!answers.is_empty()).then_some(Value::Array(answers))
    }
}
