//! Saves that go on beside the run.

use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::error::{Error, Result};

/// Work that makes something durable, on a thread of its own. What is begun later begins when it is done.
#[derive(Debug, Default)]
pub(crate) struct BackgroundSave {
    running: Option<JoinHandle<Result<()>>>,
}

impl BackgroundSave {
    /// Begins work. After an error in it nothing further is done, and `wait` returns it.
    pub(crate) fn begin(
        &mut self,
        work: impl FnOnce() -> Result<()> + Send + 'static,
    ) -> Result<()> {
        let earlier = self.running.take();
        let begun = thread::Builder::new().name("save".into()).spawn(move || {
            earlier.map_or(Ok(()), join)?;
            work()
        });
        self.running =
            Some(begun.map_err(|error| Error::io("start", Path::new("a thread"), error))?);
        Ok(())
    }

    /// Whether something is not done yet.
    pub(crate) fn is_busy(&self) -> bool {
        self.running
            .as_ref()
            .is_some_and(|running| !running.is_finished())
    }

    /// Waits until everything that was begun is done.
    pub(crate) fn wait(&mut self) -> Result<()> {
        self.running.take().map_or(Ok(()), join)
    }
}

impl Drop for BackgroundSave {
    fn drop(&mut self) {
        let _ = self.wait();
    }
}

fn join(save: JoinHandle<Result<()>>) -> Result<()> {
    save.join()
        .unwrap_or_else(|_| Err(Error::Bug("a save ended by a panic".into())))
}
