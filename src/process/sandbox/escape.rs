//! The built-in program of the probe: runs in the sandbox and tries to get out.

use std::fs;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::process::job::JobEnd;
use crate::process::os_text;
use crate::process::sandbox::policy::SandboxMode;

/// What an escape would reach.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EscapeTargets {
    /// A path outside where no file exists yet.
    #[serde(with = "os_text")]
    pub(crate) marker: PathBuf,
    /// A listener outside; `None` if the network is open.
    pub(crate) listener: Option<SocketAddr>,
}

/// Tries to escape from the sandbox; `CannotStart` with the first attempt that succeeds.
pub(crate) fn try_to_escape(mode: SandboxMode, targets: &EscapeTargets) -> JobEnd {
    let attempts = [
        (
            can_write(&targets.marker),
            "a file outside could be written",
        ),
        (
            can_change(Path::new("/usr")) && mode != SandboxMode::Reduced,
            "a read-only path could be changed",
        ),
        (
            targets.listener.is_some_and(can_connect),
            "a listener outside could be reached",
        ),
        (
            can_see_others() && mode != SandboxMode::Reduced,
            "processes outside could be seen",
        ),
    ];
    match attempts.into_iter().find(|(succeeded, _)| *succeeded) {
        Some((_, escape)) => JobEnd::CannotStart(escape.to_owned()),
        None => JobEnd::Exited(0),
    }
}

fn can_write(path: &Path) -> bool {
    fs::File::create(path).is_ok() || rustix::fs::symlink("x", path).is_ok()
}

fn can_change(path: &Path) -> bool {
    let Ok(found) = fs::metadata(path) else {
        return false;
    };
    !matches!(fs::set_permissions(path, found.permissions()).map_err(|error| error.raw_os_error()),
        Err(Some(code)) if code == Errno::ROFS.raw_os_error())
}

fn can_connect(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(500)).is_ok()
        // A new network namespace has no route to it.
        || UdpSocket::bind(("0.0.0.0", 0)).is_ok_and(|socket| socket.connect(("192.0.2.1", 9)).is_ok())
}

/// Whether `/proc` shows more than this process and its init.
fn can_see_others() -> bool {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    2 < entries
        .filter(|entry| entry.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .count()
}
