//! The outside of the sandbox: a home with secrets, listeners, a process, a terminal; and the check that it is unchanged.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, lchown};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_setfl, lgetxattr, llistxattr, mknodat};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::support::project::{ANTHROPIC_KEY, Project};
use crate::support::restrictions::Restrictions;
use crate::support::server::Server;

const FILES: [(&str, &str); 12] = [
    ("home/.bashrc", "# theirs\n"),
    ("home/.ssh/authorized_keys", "theirs\n"),
    ("home/.ssh/id_ed25519", "SECRET\n"),
    ("home/.aws/credentials", "SECRET\n"),
    ("home/.mozilla/firefox/x.default/logins.json", "SECRET\n"),
    ("home/.cargo/bin/tool", "#!/bin/sh\n"),
    ("home/.cargo/credentials.toml", "SECRET\n"),
    ("home/.config/autostart/theirs.desktop", "theirs\n"),
    ("home/precious", "precious\n"),
    ("home/metadata", "theirs\n"),
    ("open/file", "opened by name\n"),
    ("open/.netrc", "SECRET\n"),
];
const SECRETS: [&str; 6] = [
    "home/.ssh/id_ed25519",
    "home/.aws/credentials",
    "home/.mozilla/firefox/x.default/logins.json",
    "home/.cargo/credentials.toml",
    "home/precious",
    "open/.netrc",
];
/// Files that the binary itself writes outside the workspace, with their folder.
const OF_THE_RUN: [&str; 8] = [
    "root",
    "root/workspace",
    "root/logs",
    "root/state.json",
    "root/.orchestrator.lock",
    "tmp",
    "home/.cache",
    "home/.local",
];

/// The outside of a project.
pub(super) struct Outside {
    pub project: Project,
    restrictions: Restrictions,
    tcp: TcpListener,
    tcp6: Option<TcpListener>,
    everywhere: TcpListener,
    udp: UdpSocket,
    sockets: Vec<UnixListener>,
    datagrams: Vec<UnixDatagram>,
    terminal: (File, PathBuf),
    _slave: File,
    fifo: File,
    decoy: Decoy,
    setuid: Option<PathBuf>,
    before: BTreeMap<PathBuf, String>,
    of_the_decoy: String,
}

struct Decoy(Child);

impl Drop for Decoy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Outside {
    /// Makes an outside around an empty root; not below `/tmp`, which is private inside the sandbox.
    pub(super) fn new(restrictions: Restrictions, server: &Server) -> Outside {
        let project = Project::below(Path::new("/var/tmp"))
            .model(server)
            .restricted(restrictions);
        let tmp = project.outside("tmp");
        let project = project
            .env("TMPDIR", &tmp.display().to_string())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        for (path, text) in FILES {
            put(&project.outside(path), text);
        }
        for folder in [
            "tmp",
            "home/.cache",
            "home/empty",
            "home/run",
            "root/workspace",
        ] {
            fs::create_dir_all(project.outside(folder)).unwrap();
        }
        let at = |path: &str| project.outside(path);
        mknodat(
            CWD,
            at("open/fifo"),
            FileType::Fifo,
            Mode::RUSR | Mode::WUSR,
            0,
        )
        .unwrap();
        let fifo = File::options()
            .read(true)
            .write(true)
            .open(at("open/fifo"))
            .unwrap();
        fcntl_setfl(&fifo, OFlags::NONBLOCK).unwrap();
        let setuid = restrictions.user.map(|_| at("open/setuid"));
        let (terminal, slave) = terminal(restrictions.uid());
        let name = project.marker().to_owned();
        let outside = Outside {
            restrictions,
            tcp: listen("127.0.0.1:0").unwrap(),
            tcp6: listen("[::1]:0"),
            everywhere: listen("0.0.0.0:0").unwrap(),
            udp: UdpSocket::bind("0.0.0.0:0").unwrap(),
            sockets: vec![
                UnixListener::bind(at("home/run/docker.sock")).unwrap(),
                UnixListener::bind(at("home/.ssh/agent.sock")).unwrap(),
                UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                UnixListener::bind(at("open/socket")).unwrap(),
            ],
            datagrams: vec![
                UnixDatagram::bind(at("home/run/log.sock")).unwrap(),
                UnixDatagram::bind_addr(
                    &SocketAddr::from_abstract_name(format!("{name}-datagram")).unwrap(),
                )
                .unwrap(),
            ],
            terminal,
            _slave: slave,
            fifo,
            decoy: decoy(restrictions),
            setuid,
            before: BTreeMap::new(),
            of_the_decoy: String::new(),
            project,
        };
        outside.quiet();
        outside
    }

    fn quiet(&self) {
        for listener in [&self.tcp, &self.everywhere].into_iter().chain(&self.tcp6) {
            listener.set_nonblocking(true).unwrap();
        }
        self.udp.set_nonblocking(true).unwrap();
        self.sockets
            .iter()
            .for_each(|socket| socket.set_nonblocking(true).unwrap());
        self.datagrams
            .iter()
            .for_each(|socket| socket.set_nonblocking(true).unwrap());
    }

    /// The description of it that the hostile program gets.
    pub(super) fn facts(&self, mode: &str, model: &Server) -> Value {
        let at = |path: &str| self.project.outside(path).display().to_string();
        let tcp = |listener: &TcpListener| listener.local_addr().unwrap().port();
        let root = [
            "root/specs/spec.yaml",
            "root/state.json",
            "root/.orchestrator.lock",
        ]
        .map(at);
        let system = [
            "/etc/shadow",
            "/etc/gshadow",
            "/etc/sudoers",
            "/var/log/dpkg.log",
        ]
        .map(str::to_owned);
        let secrets: Vec<String> = SECRETS
            .map(at)
            .into_iter()
            .chain(root)
            .chain(system)
            .collect();
        let (user, word) = ANTHROPIC_KEY.split_at(10);
        let workspace = at("root/workspace");
        json!({
            "mode": mode, "home": at("home"), "root": at("root"), "open": at("open"), "workspace": workspace,
            "decoy": self.decoy.0.id(), "secrets": secrets, "key": [user, word], "marker": self.project.marker(),
            "sockets": [at("home/run/docker.sock"), at("home/.ssh/agent.sock")], "datagrams": [at("home/run/log.sock")],
            "abstract": self.project.marker(), "tcp": tcp(&self.tcp), "tcp6": self.tcp6.as_ref().map_or(9, tcp),
            "everywhere": tcp(&self.everywhere), "udp": self.udp.local_addr().unwrap().port(), "model": model.port(),
            "address": own_address(), "terminal": self.terminal.1, "setuid": self.setuid,
            "ways": {at("root"): ["workspace"], at("home"): [".cargo", ".cache"]}, "results": "results.json",
            "private": if mode == "full" { vec!["/tmp", "/dev/shm", "/run"] } else { Vec::new() },
        })
    }

    /// Changes the owner of everything to the user of the run and records its state.
    pub(super) fn record_state(&mut self) {
        if let Some(user) = self.restrictions.user {
            let all = walk(&self.project.outside(""));
            all.iter()
                .for_each(|path| lchown(path, Some(user), Some(user)).unwrap());
        }
        if let Some(setuid) = &self.setuid {
            fs::copy("/usr/bin/id", setuid).unwrap();
            fs::set_permissions(setuid, Permissions::from_mode(0o4755)).unwrap();
        }
        self.before = manifest(&self.project.outside(""));
        self.of_the_decoy = self.decoy.description();
    }

    /// Asserts that nothing changed, except modes, times and attributes of one file.
    pub(super) fn is_unchanged(&mut self, but: &[&str]) {
        let spared: Vec<PathBuf> = but.iter().map(|path| self.project.outside(path)).collect();
        let mut after = manifest(&self.project.outside(""));
        let mut before = self.before.clone();
        spared.iter().for_each(|path| {
            before.remove(path);
            after.remove(path);
        });
        let gone = before
            .iter()
            .filter(|(path, line)| after.get(*path) != Some(line));
        let new = after
            .iter()
            .filter(|(path, line)| before.get(*path) != Some(line));
        let changes: Vec<_> = gone
            .map(|entry| ("before", entry))
            .chain(new.map(|entry| ("after", entry)))
            .collect();
        assert!(changes.is_empty(), "changed outside: {changes:#?}");
        assert_eq!(
            self.decoy.description(),
            self.of_the_decoy,
            "the process outside"
        );
        self.heard_nothing();
        self.left_nothing();
    }

    fn heard_nothing(&mut self) {
        let silent = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
        for listener in [&self.tcp, &self.everywhere].into_iter().chain(&self.tcp6) {
            silent(listener.accept().expect_err("somebody has connected"));
        }
        silent(self.udp.recv(&mut [0; 64]).expect_err("a packet has come"));
        for socket in &self.sockets {
            silent(
                socket
                    .accept()
                    .expect_err("somebody has connected to a unix socket"),
            );
        }
        for socket in &self.datagrams {
            silent(
                socket
                    .recv(&mut [0; 64])
                    .expect_err("a unix datagram has come"),
            );
        }
        silent(
            self.fifo
                .read(&mut [0; 64])
                .expect_err("something was written to the pipe"),
        );
        silent(
            self.terminal
                .0
                .read(&mut [0; 64])
                .expect_err("something was written to the terminal"),
        );
    }

    fn left_nothing(&self) {
        let marker = format!("{}-left", self.project.marker());
        for folder in ["/tmp", "/var/tmp", "/dev/shm", "/run", "/dev/mqueue"] {
            assert!(
                !Path::new(folder).join(&marker).exists(),
                "something was left in {folder}"
            );
        }
        self.project.nothing_left();
    }
}

impl Decoy {
    /// Everything that other processes could change about it.
    fn description(&mut self) -> String {
        assert_eq!(
            self.0.try_wait().unwrap(),
            None,
            "the process outside is gone"
        );
        let read =
            |name: &str| fs::read_to_string(format!("/proc/{}/{name}", self.0.id())).unwrap();
        let stat = read("stat");
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap_or_default()
            .split_whitespace()
            .collect();
        // State, priority, nice and policy.
        let scheduling = [0, 15, 16, 38]
            .map(|field| fields[field].to_owned())
            .join(" ");
        let status = read("status");
        let shown = |line: &&str| {
            line.starts_with("Cpus_allowed:") || line.contains("Pnd:") || line.starts_with("Name:")
        };
        let status: Vec<&str> = status.lines().filter(shown).collect();
        [
            read("limits"),
            scheduling,
            status.join("\n"),
            read("oom_score_adj"),
        ]
        .join("\n")
    }
}

fn decoy(restrictions: Restrictions) -> Decoy {
    // A blocked signal stays visible as pending, also one that is usually ignored.
    let mut command = Command::new("env");
    command
        .args(["--block-signal=URG", "sleep", "100000"])
        .current_dir("/")
        .process_group(0);
    Restrictions {
        user: restrictions.user,
        ..Restrictions::default()
    }
    .apply(&mut command);
    let mut decoy = Decoy(command.spawn().unwrap());
    // It must sleep before its state is read.
    crate::support::running::until("the process outside sleeps", || {
        decoy.description().contains("\nS 20") && decoy.description().contains("\tsleep")
    });
    decoy
}

fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

fn listen(address: &str) -> Option<TcpListener> {
    TcpListener::bind(address).ok()
}

/// A terminal of the user: the main side, the path of the other side, and the other side.
fn terminal(user: u32) -> ((File, PathBuf), File) {
    let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let path = PathBuf::from(ptsname(&master, Vec::new()).unwrap().into_string().unwrap());
    lchown(&path, Some(user), None).unwrap();
    let slave = File::options().read(true).write(true).open(&path).unwrap();
    fcntl_setfl(&master, OFlags::NONBLOCK).unwrap();
    ((File::from(master), path), slave)
}

/// An address of this machine by which others reach it.
fn own_address() -> String {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    let address = socket
        .connect("192.0.2.1:9")
        .and_then(|()| socket.local_addr());
    address.map_or_else(
        |_| "127.0.0.1".to_owned(),
        |address| address.ip().to_string(),
    )
}

/// A folder and everything below it.
fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut next = 0;
    while let Some(path) = all.get(next).cloned() {
        next += 1;
        if fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir()) {
            all.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        }
    }
    all
}

/// Path, type, size, content, mode, owner, time and attributes of everything but what the run itself writes.
fn manifest(folder: &Path) -> BTreeMap<PathBuf, String> {
    let of_the_run: Vec<PathBuf> = OF_THE_RUN.iter().map(|path| folder.join(path)).collect();
    let is_ours = |path: &Path| {
        of_the_run.iter().skip(1).any(|own| path.starts_with(own)) || path == of_the_run[0]
    };
    walk(folder)
        .into_iter()
        .filter(|path| !is_ours(path))
        .map(|path| (path.clone(), describe(&path)))
        .collect()
}

fn describe(path: &Path) -> String {
    let found = fs::symlink_metadata(path).unwrap();
    let kind = found.file_type();
    let content = match () {
        () if kind.is_symlink() => fs::read_link(path).unwrap().display().to_string(),
        () if kind.is_file() && found.len() < 1 << 20 => {
            fs::read_to_string(path).unwrap_or_default()
        }
        () => String::new(),
    };
    let special = [
        kind.is_dir(),
        kind.is_fifo(),
        kind.is_socket(),
        kind.is_char_device(),
        kind.is_block_device(),
    ];
    format!(
        "{kind:?} {special:?} {} {:o} {}:{} {}.{} {:?} {content:?}",
        if kind.is_dir() { 0 } else { found.len() },
        found.mode(),
        found.uid(),
        found.gid(),
        found.mtime(),
        found.mtime_nsec(),
        attributes(path)
    )
}

fn attributes(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut names = vec![0; 4096];
    let count = llistxattr(path, &mut names[..]).unwrap_or(0);
    let names = names[..count]
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty());
    names
        .map(|name| {
            let mut value = vec![0; 4096];
            let count = lgetxattr(path, name, &mut value[..]).unwrap_or(0);
            (
                String::from_utf8_lossy(name).into_owned(),
                value[..count].to_vec(),
            )
        })
        .collect()
}

mod tests {
    use std::io::Write;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use rustix::process::{Pid, Signal, kill_process};

    use super::*;

    /// Each effect of an escape is detected.
    #[test]
    fn every_kind_of_outside_change_is_detected() {
        let server = Server::start([]);
        type Change = fn(&mut Outside);
        let changes: [Change; 9] = [
            |outside| fs::write(outside.project.outside("home/precious"), "other\n").unwrap(),
            |outside| fs::write(outside.project.outside("home/new"), "").unwrap(),
            |outside| fs::remove_file(outside.project.outside("home/.bashrc")).unwrap(),
            |outside| {
                fs::set_permissions(
                    outside.project.outside("home/metadata"),
                    Permissions::from_mode(0o751),
                )
                .unwrap()
            },
            |outside| {
                drop(std::net::TcpStream::connect(outside.tcp.local_addr().unwrap()).unwrap())
            },
            |outside| {
                drop(
                    std::os::unix::net::UnixStream::connect(outside.project.outside("open/socket"))
                        .unwrap(),
                )
            },
            |outside| outside.fifo.write_all(b"x").unwrap(),
            |outside| {
                File::options()
                    .write(true)
                    .open(&outside.terminal.1)
                    .unwrap()
                    .write_all(b"x")
                    .unwrap()
            },
            |outside| kill_process(Pid::from_child(&outside.decoy.0), Signal::URG).unwrap(),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut outside = Outside::new(Restrictions::default(), &server);
            outside.record_state();
            outside.is_unchanged(&[]);
            change(&mut outside);
            let found = catch_unwind(AssertUnwindSafe(|| outside.is_unchanged(&[])));
            assert!(found.is_err(), "change {number} is not found");
        }
    }
}
