//! Slurm.

use std::ffi::OsString;
use std::io;
use std::time::Instant;

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::fleet::engine::{
    Engine, EngineQueue, EngineTask, EngineWait, QueueReading, StartFailure,
};
use crate::fleet::folder::FleetFolder;
use crate::fleet::plan::FleetPlan;

pub(crate) struct SlurmSettings {}
impl SlurmSettings {
    pub(crate) fn check(
        _variables: Vec<(OsString, OsString)>,
        _cancel: &CancelToken,
    ) -> Result<SlurmSettings> {
        Err(Error::Usage("slurm is not there".into()))
    }
}
pub(crate) struct SlurmEngine {}
impl SlurmEngine {
    pub(crate) fn new(
        _settings: SlurmSettings,
        _folder: &FleetFolder,
        _plan: &FleetPlan,
    ) -> Result<SlurmEngine> {
        Err(Error::Usage("slurm is not there".into()))
    }
}
impl Engine for SlurmEngine {
    fn read_queue(&mut self) -> Result<QueueReading> {
        Ok(QueueReading::Unknown(String::new()))
    }
    fn select(&self, _ready: &[EngineTask], _out: &EngineQueue) -> Vec<EngineTask> {
        Vec::new()
    }
    fn start(&mut self, _tasks: &[EngineTask]) -> std::result::Result<(), StartFailure> {
        Ok(())
    }
    fn stop(&mut self, _tasks: &[EngineTask]) {}
    fn withdraw(&mut self, _tasks: &[EngineTask]) {}
    fn wait(&mut self, _cancel: &CancelToken, _until: Option<Instant>) -> io::Result<EngineWait> {
        Ok(EngineWait::Over)
    }
    fn interrupt(&mut self, _out: &EngineQueue, _say: &mut dyn FnMut(String)) {}
    fn finish(&mut self) {}
    fn is_local(&self) -> bool {
        false
    }
    fn printed(&self) -> String {
        String::new()
    }
}
