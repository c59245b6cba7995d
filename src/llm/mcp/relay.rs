//! The relay: this binary under a hidden command, which copies bytes between the standard streams and the orchestrator's
//! socket. It ends when either side does.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};

/// Copies between the standard streams and the socket at `path`; returns an exit code.
pub fn main(path: Option<&OsStr>) -> u8 {
    match path.map(|path| relay(Path::new(path))) {
        Some(Ok(())) => 0,
        Some(Err(_)) => 74,
        None => 64,
    }
}

fn relay(path: &Path) -> io::Result<()> {
    let (_folder, address) = short_path(path)?;
    let mut socket = UnixStream::connect(address)?;
    let mut input = socket.try_clone()?;
    thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let _ = io::copy(&mut io::stdin().lock(), &mut input);
            let _ = input.shutdown(Shutdown::Write);
        })?;
    let (mut stdout, mut chunk) = (io::stdout().lock(), [0; 16 << 10]);
    loop {
        match socket.read(&mut chunk)? {
            0 => return Ok(()),
            count => stdout
                .write_all(&chunk[..count])
                .and_then(|()| stdout.flush())?,
        }
    }
}

/// Returns another path of a socket, short enough for a socket address, valid while the descriptor is open.
pub(super) fn short_path(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let (folder, name) = path
        .parent()
        .zip(path.file_name())
        .ok_or(io::ErrorKind::InvalidInput)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = rustix::fs::open(folder, flags, Mode::empty())?;
    let short = Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join(name);
    Ok((folder, short))
}
