//! (stand-in until the real one is merged)

#[derive(Debug, Default)]
pub struct Output(Vec<u8>);

impl Output {
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub fn take(&mut self, _ended: bool) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.0)).into_owned()
    }
}
