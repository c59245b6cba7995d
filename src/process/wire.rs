//! What the orchestrator and a keeper say to each other over their socket.
//!
//! One job goes down, with a descriptor where the command gets one; wishes of a byte or two follow it, one `JobEnd` comes
//! back. A message is its length and its bytes; names and values are bytes, for neither a path nor an argument has to be
//! text.

mod task;

use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::retry_on_intr;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

pub(super) use self::task::{Task, TaskMessage};
use crate::process::job::{Job, JobEnd};
use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};

/// Asks a keeper to end everything now; the end of the stream asks for the same.
pub(super) const END_NOW: u8 = b'!';
/// Asks a keeper to end everything, with a moment's grace.
pub(super) const END_SOON: u8 = b'~';
/// Asks a keeper for a signal to the command's process group; the signal's number follows. An empty message comes back.
pub(super) const SIGNAL_GROUP: u8 = b'g';
/// Asks a keeper for SIGINT to the command and what it runs in the foreground; a message with the processes that are
/// spared follows. An empty message comes back.
pub(super) const INTERRUPT: u8 = b'i';

/// Asks a keeper which of some processes live; a message with their numbers follows, as the command knows them. A message
/// with those that do comes back.
pub(super) const WHO_LIVES: u8 = b'l';

/// What the command's stdin is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildInput {
    Empty,
    /// A descriptor that follows the job.
    Channel,
    /// A descriptor that follows the job; it is stdout, too.
    Duplex,
}

/// Sends a wish that is one byte.
pub(super) fn ask(mut supervisor: impl Write, action: u8) -> io::Result<()> {
    supervisor.write_all(&[action])
}

impl ChildInput {
    /// All of them; their places in it are their numbers in a message.
    const ALL: [ChildInput; 3] = [ChildInput::Empty, ChildInput::Channel, ChildInput::Duplex];
}

/// Sends one message.
pub(super) fn send(mut to: impl Write, message: &[u8]) -> io::Result<()> {
    let mut whole = Vec::with_capacity(message.len() + 4);
    put_bytes(&mut whole, message);
    to.write_all(&whole)
}

/// Receives one message; a stream that ends before it is an error.
pub(super) fn receive(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length);
    let mut message = Vec::new();
    match from.take(length.into()).read_to_end(&mut message)? {
        read if read == length as usize => Ok(message),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
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

/// Says, beside the input, that the end of a channel follows.
const REPORTS: u8 = 0x80;

/// Returns a job as a message; its time limit stays with the orchestrator. `reports`: the end of a channel follows.
pub(super) fn encode_job(job: &Job, input: ChildInput, reports: bool) -> Vec<u8> {
    let mut message = vec![input as u8 | if reports { REPORTS } else { 0 }];
    put_bytes(&mut message, job.cwd.as_os_str().as_bytes());
    put_list(&mut message, job.command.iter().map(OsString::as_os_str));
    put_list(
        &mut message,
        job.env
            .iter()
            .flat_map(|(name, value)| [name.as_os_str(), value.as_os_str()]),
    );
    message
}

/// Returns the job in a message, or nothing where it holds none.
pub(super) fn decode_job(message: &[u8]) -> Option<(Job, ChildInput, bool)> {
    let (kind, mut message) = message.split_first()?;
    let input = *ChildInput::ALL.get(usize::from(*kind & !REPORTS))?;
    let cwd = take_bytes(&mut message)?.into();
    let command = take_list(&mut message)?;
    let mut words = take_list(&mut message)?.into_iter();
    let env = std::iter::from_fn(|| words.next().zip(words.next())).collect();
    Some((
        Job {
            command,
            cwd,
            env,
            timeout: Duration::MAX,
        },
        input,
        *kind & REPORTS != 0,
    ))
}

/// Returns processes as a message, which no end is.
pub(super) fn encode_pids(pids: &[u32]) -> Vec<u8> {
    std::iter::once(b'p')
        .chain(pids.iter().flat_map(|pid| pid.to_le_bytes()))
        .collect()
}

/// Returns the processes in a message.
pub(super) fn decode_pids(message: &[u8]) -> Vec<u32> {
    let numbers = message.strip_prefix(b"p").unwrap_or_default();
    numbers
        .as_chunks()
        .0
        .iter()
        .map(|bytes| u32::from_le_bytes(*bytes))
        .collect()
}

/// Returns an end as a message.
pub(super) fn encode_ended(ended: &JobEnd) -> Vec<u8> {
    let (kind, rest) = match ended {
        JobEnd::Exited(code) => (b'e', code.to_le_bytes().to_vec()),
        JobEnd::Signalled(number) => (b's', number.to_le_bytes().to_vec()),
        JobEnd::TimedOut => (b't', Vec::new()),
        JobEnd::CannotStart(reason) => (b'c', reason.clone().into_bytes()),
        JobEnd::NoWalls(SandboxFailure { layer, what }) => {
            (b'w', [&[*layer as u8], what.as_bytes()].concat())
        }
        JobEnd::Limit(which) => (b'l', which.clone().into_bytes()),
    };
    [vec![kind], rest].concat()
}

/// Returns the end in a message, or nothing where it holds none.
pub(super) fn decode_ended(message: &[u8]) -> Option<JobEnd> {
    let (kind, rest) = message.split_first()?;
    match kind {
        b'e' => Some(JobEnd::Exited(i32::from_le_bytes(rest.try_into().ok()?))),
        b's' => Some(JobEnd::Signalled(i32::from_le_bytes(rest.try_into().ok()?))),
        b't' => Some(JobEnd::TimedOut),
        b'c' => Some(JobEnd::CannotStart(
            String::from_utf8_lossy(rest).into_owned(),
        )),
        b'w' => {
            let (layer, what) = rest.split_first()?;
            let layer = *SandboxLayer::ALL.get(usize::from(*layer))?;
            Some(JobEnd::NoWalls(SandboxFailure {
                layer,
                what: String::from_utf8_lossy(what).into_owned(),
            }))
        }
        b'l' => Some(JobEnd::Limit(String::from_utf8_lossy(rest).into_owned())),
        _ => None,
    }
}

/// Reads bytes as everything that they could be, and returns whether they are any of it: for who tries the readers.
pub fn is_decodable(bytes: &[u8]) -> bool {
    let message = receive(bytes);
    let message = message.as_deref().unwrap_or(bytes);
    decode_pids(message);
    decode_job(message).is_some() || decode_ended(message).is_some()
}

fn put_number(message: &mut Vec<u8>, number: usize) {
    // What does not fit 32 bits is far beyond what the kernel takes as arguments; a cut message is refused at its reader.
    message.extend(u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_bytes(message: &mut Vec<u8>, bytes: &[u8]) {
    put_number(message, bytes.len());
    message.extend(bytes);
}

fn put_list<'a>(message: &mut Vec<u8>, words: impl Iterator<Item = &'a OsStr> + Clone) {
    put_number(message, words.clone().count());
    words.for_each(|word| put_bytes(message, word.as_bytes()));
}

fn take_number(message: &mut &[u8]) -> Option<usize> {
    let (number, rest) = message.split_first_chunk()?;
    *message = rest;
    usize::try_from(u32::from_le_bytes(*number)).ok()
}

fn take_bytes(message: &mut &[u8]) -> Option<OsString> {
    let length = take_number(message)?;
    let (bytes, rest) = message.split_at_checked(length)?;
    *message = rest;
    Some(OsString::from_vec(bytes.to_vec()))
}

fn take_list(message: &mut &[u8]) -> Option<Vec<OsString>> {
    let count = take_number(message)?;
    (0..count).map(|_| take_bytes(message)).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{ChildInput, decode_ended, decode_job, encode_ended, encode_job, receive, send};
    use crate::process::job::{Job, JobEnd};

    fn word() -> impl Strategy<Value = OsString> {
        prop::collection::vec(any::<u8>(), 0..20).prop_map(OsString::from_vec)
    }

    proptest! {
        #[test]
        fn a_job_arrives_as_it_was(
            command in prop::collection::vec(word(), 0..5),
            cwd in word(),
            env in prop::collection::vec((word(), word()), 0..5),
        ) {
            let job = Job { command, cwd: cwd.into(), env, timeout: Duration::MAX };
            let mut stream = Vec::new();
            send(&mut stream, &encode_job(&job, ChildInput::Channel, true)).unwrap();
            let (arrived, input, reports) = decode_job(&receive(stream.as_slice()).unwrap()).unwrap();
            prop_assert_eq!((input, reports), (ChildInput::Channel, true));
            prop_assert_eq!((arrived.command, arrived.cwd, arrived.env), (job.command, job.cwd, job.env));
        }

        #[test]
        fn noise_is_refused_in_peace(noise in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = decode_job(&noise);
            let _ = decode_ended(&noise);
            let _ = receive(noise.as_slice());
        }
    }

    #[test]
    fn an_end_arrives_as_it_was() {
        for ended in [
            JobEnd::Exited(255),
            JobEnd::Signalled(11),
            JobEnd::TimedOut,
            JobEnd::CannotStart("no ünlucky".to_owned()),
            JobEnd::Limit("too much".to_owned()),
        ] {
            assert_eq!(decode_ended(&encode_ended(&ended)), Some(ended));
        }
    }
}
