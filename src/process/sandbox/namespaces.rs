//! Sets up new namespaces: user and group mapping, private loopback.
//!
//! User and group keep their numbers, root stays 0. No other is mapped: foreign files show the overflow owner,
//! and the rights of the namespace do not reach beyond it.

use std::fs::File;
use std::io::{self, Write};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};
use rustix::process::{Gid, Uid};
use rustix::process::{getegid, geteuid};

use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};

/// User and group of a process before it enters a user namespace, where they are unmapped at first.
#[derive(Clone, Copy)]
pub(super) struct NamespaceOwner {
    user: Uid,
    group: Gid,
}

impl NamespaceOwner {
    pub(super) fn of_this_process() -> NamespaceOwner {
        NamespaceOwner {
            user: geteuid(),
            group: getegid(),
        }
    }

    /// Maps user and group to themselves.
    pub(super) fn map(self) -> Result<(), SandboxFailure> {
        let (user, group) = (self.user.as_raw(), self.group.as_raw());
        let write = |name: &str, text: String| {
            let path = format!("/proc/self/{name}");
            let written = File::options()
                .write(true)
                .open(&path)
                .and_then(|mut file| file.write_all(text.as_bytes()));
            written.map_err(|error| {
                SandboxFailure::new(SandboxLayer::Namespaces, format!("write {path}"), error)
            })
        };
        write("setgroups", "deny".to_owned())?;
        write("uid_map", format!("{user} {user} 1"))?;
        write("gid_map", format!("{group} {group} 1"))
    }
}

/// Brings the loopback interface up.
pub(super) fn loopback_up() -> Result<(), SandboxFailure> {
    set_loopback_up().map_err(|error| {
        SandboxFailure::new(SandboxLayer::Namespaces, "bring the loopback up", error)
    })
}

/// Sends `RTM_NEWLINK` for the first interface over a netlink socket, and waits for the acknowledgement.
fn set_loopback_up() -> io::Result<()> {
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    send(&socket, &link_up_message(), SendFlags::empty())?;
    let mut answer = [0; 256];
    let (count, _) = recv(&socket, &mut answer[..], RecvFlags::empty())?;
    // The error code follows the header of 16 bytes.
    let code = answer[..count]
        .get(16..20)
        .and_then(|bytes| bytes.try_into().ok())
        .map(i32::from_ne_bytes);
    match code {
        Some(0) => Ok(()),
        Some(code) => Err(io::Error::from_raw_os_error(-code)),
        None => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// A `nlmsghdr` and an `ifinfomsg`.
fn link_up_message() -> Vec<u8> {
    const LENGTH: u32 = 32;
    const RTM_NEWLINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    const LOOPBACK: i32 = 1;
    const UP: u32 = 1;
    let sequence_and_sender = [0; 8];
    let family_and_type = [0; 4];
    [
        &LENGTH.to_ne_bytes()[..],
        &RTM_NEWLINK.to_ne_bytes(),
        &REQUEST_AND_ACKNOWLEDGE.to_ne_bytes(),
        &sequence_and_sender,
        &family_and_type,
        &LOOPBACK.to_ne_bytes(),
        &UP.to_ne_bytes(),
        &UP.to_ne_bytes(),
    ]
    .concat()
}
