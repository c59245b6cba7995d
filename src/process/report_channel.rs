//! A channel on which a child reports beside its output: packets, each answered or not.
//!
//! The child has one end of a socket pair and the number of it in a variable. It cannot be opened again by its name in
//! /proc, it keeps packets apart, and what was sent by one process is not there to be read by another.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::{self, JoinHandle};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};
use rustix::net::{recv, send, shutdown, socketpair};

/// The variable that tells a child the number of its end.
pub const REPORT_VARIABLE: &str = "TEST_REPORT_FD";

/// The longest packet that is read whole.
const MAX_PACKET: usize = 64 << 10;

/// What takes in packets.
pub trait PacketListener: Send + 'static {
    /// Takes in one packet, and returns what is answered.
    fn receive(&mut self, packet: &[u8]) -> Option<Vec<u8>>;
}

/// A channel with somebody who listens.
pub struct ReportChannel<L> {
    ours: OwnedFd,
    theirs: OwnedFd,
    thread: JoinHandle<L>,
}

impl<L: PacketListener> ReportChannel<L> {
    /// Opens a channel.
    pub fn open(listener: L) -> io::Result<ReportChannel<L>> {
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

    /// Returns the end that a child gets.
    pub fn end(&self) -> BorrowedFd<'_> {
        self.theirs.as_fd()
    }

    /// Returns the listener; what is in the channel by now still counts, what comes later does not.
    pub fn close(self) -> Option<L> {
        drop(self.theirs);
        let _ = shutdown(&self.ours, Shutdown::Read);
        self.thread.join().ok()
    }
}

fn listen<L: PacketListener>(channel: &OwnedFd, mut listener: L) -> L {
    let mut packet = vec![0; MAX_PACKET];
    loop {
        match recv(channel, packet.as_mut_slice(), RecvFlags::empty()) {
            // Also an empty packet, which nobody of ours sends.
            Ok((_, 0)) => return listener,
            Ok((_, length)) => {
                let answer = listener.receive(&packet[..length.min(MAX_PACKET)]);
                // A process that asks and does not read the answers gets no more of them.
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
    fn packets_stay_apart_and_all_of_them_count() {
        let report = ReportChannel::open(Counting::default()).unwrap();
        write(report.end(), b"hello").unwrap();
        let mut answer = [0; 64];
        assert_eq!(read(report.end(), &mut answer).unwrap(), 5);
        for length in 1..100 {
            write(report.end(), &vec![b'x'; length]).unwrap();
        }
        let held = report.end().try_clone_to_owned().unwrap();
        let heard = report.close().unwrap().0;
        assert_eq!(heard, std::iter::once(5).chain(1..100).collect::<Vec<_>>());
        drop(held);
    }
}
