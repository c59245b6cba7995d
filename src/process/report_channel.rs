//! A channel on which a child reports beside its output: packets, which may be answered.
//!
//! The child inherits one end of a socket pair, with its number in a variable. Unlike a pipe, a socket cannot be reopened
//! through `/proc`, keeps packets apart, and does not let one process read what another has sent.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{recv, send, shutdown, socketpair};

/// The variable with the number of the child's end.
pub(crate) const REPORT_VARIABLE: &str = "TEST_REPORT_FD";

/// Longer packets are truncated.
const MAX_PACKET: usize = 64 << 10;

/// Handles the packets of a channel.
pub(crate) trait PacketListener: Send + 'static {
    /// Handles one packet, and returns the answer to it.
    fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>>;
}

/// A channel, and the thread that listens on it.
pub(crate) struct ReportChannel<L> {
    ours: OwnedFd,
    theirs: OwnedFd,
    thread: JoinHandle<L>,
}

impl<L: PacketListener> ReportChannel<L> {
    pub(crate) fn open(listener: L) -> io::Result<ReportChannel<L>> {
        let (ours, theirs) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )?;
        let own = ours.try_clone()?;
        let thread = thread::Builder::new()
            .name("report".to_owned())
            .spawn(move || listen(&own, listener))?;
        Ok(ReportChannel {
            ours,
            theirs,
            thread,
        })
    }

    /// The child's end.
    pub(crate) fn end(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    /// Returns the listener after it has handled the packets that are buffered now; later ones are dropped.
    pub(crate) fn close(self) -> Option<L> {
        drop(self.theirs);
        let _ = shutdown(&self.ours, Shutdown::Read);
        self.thread.join().ok()
    }
}

fn listen<L: PacketListener>(channel: &OwnedFd, mut listener: L) -> L {
    let mut packet = vec![0; MAX_PACKET];
    loop {
        match recv(channel, packet.as_mut_slice(), RecvFlags::empty()) {
            // EOF, or an empty packet, which our reporters do not send.
            Ok((_, 0)) => return listener,
            Ok((_, length)) => {
                let answer = listener.receive(&packet[..length.min(MAX_PACKET)]);
                // If the child does not read its answers, further ones are dropped.
                if let Some(answer) = answer {
                    let _ = send(channel, &answer, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            }
            Err(Errno::INTR) => {}
            Err(_) => return listener,
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::{read, write};

    use super::{PacketListener, ReportChannel};

    #[derive(Default)]
    struct Counting(Vec<usize>);

    impl PacketListener for Counting {
        fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>> {
            self.0.push(packet.len());
            (packet == b"hello").then(|| b"token".to_vec())
        }
    }

    #[test]
    fn packets_stay_apart_and_none_is_lost() {
        let report = ReportChannel::open(Counting::default()).unwrap();
        write(report.end(), b"hello").unwrap();
        let mut answer = [0; 64];
        assert_eq!(read(report.end(), &mut answer).unwrap(), 5);
        for length in 1..100 {
            write(report.end(), &vec![b'x'; length]).unwrap();
        }
        let held = report.end().try_clone_to_owned().unwrap();
        let lengths = report.close().unwrap().0;
        assert_eq!(
            lengths,
            std::iter::once(5).chain(1..100).collect::<Vec<_>>()
        );
        drop(held);
    }
}
