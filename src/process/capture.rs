//! Bounded output: a head, a tail, and a count of what fell out between them.

/// What was kept of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Captured {
    pub head: Vec<u8>,
    pub tail: Vec<u8>,
    /// Bytes that came between head and tail and were not kept.
    pub dropped: u64,
}
