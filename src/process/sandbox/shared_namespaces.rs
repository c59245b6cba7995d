//! A pocket: namespaces that several children share, each with a process table of its own.
//!
//! No process holds it. The orchestrator has its namespaces as descriptors, and when those are closed, by its own end
//! at the latest, the kernel takes the network, the private places and all that was mounted away.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::process::sandbox::{SandboxMode, SandboxPolicy};
use crate::process::wire::{self, Task};
use crate::process::{JobEnd, Launcher, reap, spawn_supervisor, task_message};

/// Namespaces of users, mounts, messages and, where the network is one's own, of that.
#[derive(Debug)]
pub struct SharedNamespaces {
    namespaces: Vec<OwnedFd>,
}

impl SharedNamespaces {
    /// Creates a launcher of children that share namespaces with this policy. In reduced mode there are no namespaces,
    /// and each child is restricted by itself.
    pub fn launcher(launcher: &Launcher, policy: SandboxPolicy) -> Result<Launcher> {
        let namespaces = match policy.mode {
            SandboxMode::Reduced => None,
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
                Some(Arc::new(SharedNamespaces::make(launcher, &policy)?))
            }
        };
        Ok(Launcher {
            namespaces,
            ..launcher.with_policy(policy)
        })
    }

    /// Makes a pocket with the tree of these walls in it.
    fn make(launcher: &Launcher, policy: &SandboxPolicy) -> Result<SharedNamespaces> {
        let launcher = launcher.with_policy(policy.clone());
        let io_error = |error| Error::io("start", &launcher.program, error);
        let (mut supervisor, mut control) = spawn_supervisor(
            &launcher,
            std::process::Stdio::null(),
            std::process::Stdio::null(),
        )
        .map_err(io_error)?;
        let made = task_message(&control, &launcher, Task::MakeNamespaces)
            .and_then(|()| wire::receive(&mut control))
            .map_err(io_error)
            .and_then(|message| match wire::decode_ended(&message) {
                Some(JobEnd::Exited(count)) => (0..count)
                    .map(|_| wire::receive_descriptor(&control))
                    .collect::<std::io::Result<Vec<_>>>()
                    .map_err(io_error),
                Some(JobEnd::NoWalls(failure)) => Err(failure.into()),
                _ => Err(Error::Bug(
                    "a keeper made no namespaces and does not say why".into(),
                )),
            });
        reap(&mut supervisor, true);
        Ok(SharedNamespaces { namespaces: made? })
    }

    pub(in crate::process) fn namespaces(&self) -> &[OwnedFd] {
        &self.namespaces
    }
}
