//! Work that goes on beside the run: saves, and what waits for a request to be sent.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

/// Work that one part of the program plans, another begins when it disturbs least, and the first waits for. It goes on in
/// a thread of its own. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct DeferredWork(Arc<Mutex<DeferredState>>);

#[derive(Default)]
enum DeferredState {
    #[default]
    Nothing,
    Planned(Box<dyn FnOnce() + Send>),
    Begun(JoinHandle<()>),
}

impl DeferredWork {
    pub(crate) fn plan(&self, work: impl FnOnce() + Send + 'static) {
        self.finish();
        *self.state() = DeferredState::Planned(Box::new(work));
    }

    /// Begins what is planned, if anything is.
    pub(crate) fn begin(&self) {
        let mut state = self.state();
        *state = match std::mem::take(&mut *state) {
            DeferredState::Planned(work) => match thread::Builder::new().spawn(work) {
                Ok(begun) => DeferredState::Begun(begun),
                Err(_) => DeferredState::Nothing,
            },
            other => other,
        };
    }

    /// Waits for what was begun, and drops what was not.
    pub(crate) fn finish(&self) {
        let state = std::mem::take(&mut *self.state());
        if let DeferredState::Begun(begun) = state {
            let _ = begun.join();
        }
    }

    fn state(&self) -> MutexGuard<'_, DeferredState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for DeferredWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeferredWork")
    }
}
