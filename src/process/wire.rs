//! The messages between the orchestrator and a supervisor, and between a supervisor and the init of a sandbox.
//!
//! A message is its length and JSON. A `Setup` comes first, then a `Start` if there is a command, each with the descriptors
//! that it announces; then `Request`s go down and `Reply`s come back. Shutting down the socket asks a supervisor to kill everything at once; so does
//! a message that cannot be decoded.

use std::borrow::Cow;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::process::job::{Job, JobEnd};
use crate::process::sandbox::escape::EscapeTargets;
use crate::process::sandbox::policy::SandboxPolicy;

/// The first message to a supervisor. The namespaces follow as descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setup<'a> {
    pub(super) purpose: Purpose,
    pub(super) policy: Option<Cow<'a, SandboxPolicy>>,
    /// How many namespaces to join follow.
    pub(super) namespaces: usize,
}

/// What a supervisor is set up for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Purpose {
    /// Runs a command, and ends its process tree when it exits. A `Start` follows.
    Check,
    /// The same, but its descendants may clean up.
    Environment,
    /// Creates namespaces and sends their descriptors back.
    MakeNamespaces,
    /// Runs the built-in program that tries to escape.
    Probe(EscapeTargets),
}

/// The command. As descriptors follow its stdout, its stderr, its stdin unless it is empty, its report channel, then a pipe
/// to which a byte is written just before the command begins.
///
/// In a sandbox it is read by the process that becomes the command: everything else is done by then, maybe long before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Start<'a> {
    pub(super) job: Cow<'a, Job>,
    pub(super) input: ChildInput,
    pub(super) has_report: bool,
    pub(super) has_begin_mark: bool,
}

/// What the command's stdin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum ChildInput {
    Empty,
    /// A channel.
    Channel,
    /// A channel that is its stdout, too.
    Duplex,
}

/// What the orchestrator asks of a supervisor that runs a job. Each is answered by one `Reply`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// Sends SIGTERM to everything, and SIGKILL after a grace period.
    EndSoon,
    /// Sends a signal to the command alone.
    Signal(i32),
    /// Sends a signal to the command's process group.
    SignalGroup(i32),
    /// Sends SIGINT to the command and what it runs in the foreground, but not to these processes.
    Interrupt { spared: Vec<u32> },
    /// Asks which of these processes are alive, by their numbers in the command's PID namespace.
    ListLive(Vec<u32>),
}

/// What a supervisor or the init of a sandbox reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// A process has started: its number.
    Started(u32),
    /// How many descriptors of namespaces follow.
    Namespaces(usize),
    /// The request was carried out.
    Done,
    /// The processes that are alive.
    Live(Vec<u32>),
    /// The end of the command. A supervisor sends nothing after it.
    Ended(JobEnd),
}

/// Sends one message.
pub(super) fn send(mut to: impl Write, message: &impl Serialize) -> io::Result<()> {
    let mut bytes = vec![0; size_of::<u32>()];
    serde_json::to_writer(&mut bytes, message)?;
    let length =
        u32::try_from(bytes.len() - size_of::<u32>()).map_err(|_| io::ErrorKind::InvalidInput)?;
    bytes[..size_of::<u32>()].copy_from_slice(&length.to_le_bytes());
    to.write_all(&bytes)
}

/// Receives one message. It reads not a byte more, since a descriptor may follow.
pub(super) fn receive<T: DeserializeOwned>(mut from: impl Read) -> io::Result<T> {
    let mut length = [0; size_of::<u32>()];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    let mut bytes = Vec::new();
    if from.take(length.into()).read_to_end(&mut bytes)? < length as usize {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(serde_json::from_slice(&bytes)?)
}

/// Sends a descriptor.
pub(super) fn send_descriptor(to: &UnixStream, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let descriptors = [descriptor];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    retry_on_intr(|| {
        sendmsg(
            to,
            &[IoSlice::new(b".")],
            &mut ancillary,
            SendFlags::NOSIGNAL,
        )
    })?;
    Ok(())
}

/// Receives a descriptor.
pub(super) fn receive_descriptor(from: &UnixStream) -> io::Result<OwnedFd> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    retry_on_intr(|| {
        recvmsg(
            from,
            &mut [IoSliceMut::new(&mut byte)],
            &mut ancillary,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let mut messages = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    messages
        .next()
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Fuzz entry point: decodes bytes as any message and encodes that again.
pub fn reencode(bytes: &[u8]) -> Option<Vec<u8>> {
    reencode_as::<Setup<'static>>(bytes)
        .or_else(|| reencode_as::<Start<'static>>(bytes))
        .or_else(|| reencode_as::<Request>(bytes))
        .or_else(|| reencode_as::<Reply>(bytes))
}

fn reencode_as<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut again = Vec::new();
    send(&mut again, &receive::<T>(bytes).ok()?).ok()?;
    Some(again)
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::time::Duration;

    use proptest::prelude::*;
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{ChildInput, Purpose, Reply, Request, Setup, Start, receive, reencode, send};
    use crate::process::job::{Job, JobEnd};
    use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
    use crate::process::sandbox::policy::{ResourceLimits, SandboxMode, SandboxPolicy};

    fn sent<T: Serialize + DeserializeOwned>(message: &T) -> T {
        let mut stream = Vec::new();
        send(&mut stream, message).unwrap();
        receive(stream.as_slice()).unwrap()
    }

    fn text() -> impl Strategy<Value = OsString> {
        let bytes = prop::collection::vec(any::<u8>(), 0..20).prop_map(OsString::from_vec);
        prop_oneof![bytes, "\\PC{0,20}".prop_map(OsString::from)]
    }

    fn paths() -> impl Strategy<Value = Vec<PathBuf>> {
        prop::collection::vec(text().prop_map(PathBuf::from), 0..3)
    }

    fn policy() -> impl Strategy<Value = SandboxPolicy> {
        let lists = (paths(), paths(), paths());
        let pairs = (text(), text()).prop_map(|(link, target)| (link.into(), target.into()));
        let links = prop::collection::vec(pairs, 0..3);
        let single = (text(), text(), prop::option::of(text()));
        (lists, links, single).prop_map(|((write, read, hide), links, (home, tmp, private))| {
            SandboxPolicy {
                mode: SandboxMode::Reduced,
                freeze: write.clone(),
                reopen: hide.clone(),
                devices: read.clone(),
                write,
                read,
                links,
                hide,
                home: home.into(),
                tmp: tmp.into(),
                private: private.map(PathBuf::from),
                network: true,
                limits: ResourceLimits {
                    memory: u64::MAX,
                    ..ResourceLimits::default()
                },
            }
        })
    }

    proptest! {
        #[test]
        fn a_job_arrives_unchanged(
            command in prop::collection::vec(text(), 0..5),
            cwd in text(),
            env in prop::collection::vec((text(), text()), 0..5),
            policy in policy(),
        ) {
            let job = Job { command, cwd: cwd.into(), env, timeout: Duration::ZERO };
            let start = Start { job: Cow::Owned(job), input: ChildInput::Channel, has_report: true, has_begin_mark: true };
            prop_assert_eq!(sent(&start), start);
            let policy = Some(Cow::Owned(policy));
            let setup = Setup { purpose: Purpose::Check, policy, namespaces: 3 };
            prop_assert_eq!(sent(&setup), setup);
        }

        #[test]
        fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = reencode(&bytes);
        }
    }

    #[test]
    fn an_end_arrives_unchanged() {
        for ended in [
            JobEnd::Exited(255),
            JobEnd::Signalled(11),
            JobEnd::TimedOut,
            JobEnd::Idle,
            JobEnd::OutputLimit,
            JobEnd::CannotStart("no \"ünlucky\"\n".to_owned()),
            JobEnd::Limit("too much".to_owned()),
            JobEnd::SandboxFailed(SandboxFailure {
                layer: SandboxLayer::Landlock,
                what: "refused".to_owned(),
            }),
        ] {
            let reply = Reply::Ended(ended);
            assert_eq!(sent(&reply), reply);
        }
    }

    #[test]
    fn a_message_of_another_kind_is_refused() {
        let mut stream = Vec::new();
        send(&mut stream, &Request::EndSoon).unwrap();
        assert!(receive::<Reply>(stream.as_slice()).is_err());
        assert!(receive::<Request>(&stream[..stream.len() - 1]).is_err());
    }
}
