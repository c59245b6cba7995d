//! What a keeper is to do, and behind which walls.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::process::sandbox::policy::{ResourceLimits, SandboxMode, SandboxPolicy};
use crate::process::wire::{put_bytes, put_list, take_bytes, take_list};

/// What a keeper is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// It keeps a job, which follows.
    Keep,
    /// It makes namespaces and sends them back.
    MakeNamespaces,
    /// It runs a built-in program that tries to escape; a job with its arguments follows.
    Try,
}

/// The first message to a keeper.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TaskMessage {
    pub(crate) task: Task,
    pub(crate) policy: Option<SandboxPolicy>,
    /// How many namespaces to enter follow as descriptors.
    pub(crate) namespaces: u8,
}

const TASKS: [Task; 3] = [Task::Keep, Task::MakeNamespaces, Task::Try];
const MODES: [SandboxMode; 3] = [
    SandboxMode::Full,
    SandboxMode::FullWithoutLandlock,
    SandboxMode::Reduced,
];

impl TaskMessage {
    /// Returns the order as a message.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut message = vec![
            self.task as u8,
            self.namespaces,
            u8::from(self.policy.is_some()),
        ];
        if let Some(policy) = &self.policy {
            put_policy(&mut message, policy);
        }
        message
    }

    /// Returns the order in a message, or nothing where it holds none.
    pub(crate) fn decode(message: &[u8]) -> Option<TaskMessage> {
        let ([task, namespaces, has_walls], mut rest) = message.split_first_chunk()?;
        let policy = if *has_walls == 1 {
            Some(take_policy(&mut rest)?)
        } else {
            None
        };
        Some(TaskMessage {
            task: *TASKS.get(usize::from(*task))?,
            policy,
            namespaces: *namespaces,
        })
    }
}

fn put_policy(message: &mut Vec<u8>, policy: &SandboxPolicy) {
    message.extend([policy.mode as u8, u8::from(policy.network)]);
    let ResourceLimits {
        processes,
        memory,
        disk,
        files,
        file_size,
        reserve,
        private,
    } = policy.limits;
    for limit in [processes, memory, disk, files, file_size, reserve, private] {
        message.extend(limit.to_le_bytes());
    }
    for paths in [
        &policy.write,
        &policy.freeze,
        &policy.reopen,
        &policy.read,
        &policy.hide,
        &policy.devices,
    ] {
        put_list(message, paths.iter().map(|path| path.as_os_str()));
    }
    put_list(
        message,
        policy
            .links
            .iter()
            .flat_map(|(path, target)| [path.as_os_str(), target.as_os_str()]),
    );
    put_list(message, policy.private.iter().map(|path| path.as_os_str()));
    for path in [&policy.home, &policy.tmp] {
        put_bytes(message, OsStr::as_encoded_bytes(path.as_os_str()));
    }
}

fn take_policy(message: &mut &[u8]) -> Option<SandboxPolicy> {
    let ([mode, network], rest) = message.split_first_chunk()?;
    *message = rest;
    let (mode, network) = (*MODES.get(usize::from(*mode))?, *network == 1);
    let mut number = || {
        let (bytes, rest) = message.split_first_chunk()?;
        *message = rest;
        Some(u64::from_le_bytes(*bytes))
    };
    let (processes, memory, disk, files) = (number()?, number()?, number()?, number()?);
    let (file_size, reserve, private) = (number()?, number()?, number()?);
    let limits = ResourceLimits {
        processes,
        memory,
        disk,
        files,
        file_size,
        reserve,
        private,
    };
    let mut paths = || {
        Some(
            take_list(message)?
                .into_iter()
                .map(PathBuf::from)
                .collect::<Vec<_>>(),
        )
    };
    let (write, freeze, reopen) = (paths()?, paths()?, paths()?);
    let (read, hide, devices) = (paths()?, paths()?, paths()?);
    let links = paths()?
        .chunks_exact(2)
        .map(|pair| (pair[0].clone(), pair[1].clone()))
        .collect();
    let private = paths()?.pop();
    let (home, tmp) = (take_bytes(message)?.into(), take_bytes(message)?.into());
    Some(SandboxPolicy {
        mode,
        write,
        freeze,
        reopen,
        read,
        links,
        hide,
        home,
        tmp,
        private,
        devices,
        network,
        limits,
    })
}
