//! Finds credentials in readable directories: keys, tokens and passwords.
//!
//! They are recognised by name, and if a name is ambiguous by content. The search is bounded: the top of a toolchain, and
//! a limited depth and number of names in what the user opens by name. The tables are words with white space between them.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use rustix::fs::{Access, access};

use crate::process::sandbox::trace::PathResolver;

/// Credentials of the system; `*` matches any part of a name.
const SYSTEM: &str = "
    /etc/shadow* /etc/gshadow* /etc/sudoers* /etc/security/opasswd
    /etc/ssh/*_key /etc/ssl/private /etc/pki/tls/private /etc/pki/*/private /etc/letsencrypt /etc/krb5.keytab
    /etc/NetworkManager/system-connections /etc/netplan /etc/wpa_supplicant /etc/wireguard /etc/openvpn
    /etc/ipsec.secrets /etc/ipsec.d/private /etc/ppp/*-secrets
    /etc/cryptsetup-keys.d /etc/docker/key.json /etc/kubernetes /etc/rancher
    /etc/mysql/debian.cnf /etc/samba/private /etc/cups/ssl /etc/dovecot/private /etc/postfix/sasl* /etc/msmtprc
    /etc/netrc /etc/boto.cfg /etc/credstore*
    /run/user /run/docker.sock /run/dbus";

/// Credentials of a home.
const OF_A_HOME: &str = "
    .ssh .gnupg .aws .azure .kube .docker .netrc _netrc
    .npmrc .yarnrc.yml .pypirc .git-credentials .gem/credentials .bundle/config
    .vault-token .pgpass .my.cnf .s3cfg .boto .databrickscfg
    .terraform.d .terraformrc .pulumi .fly .railway .oci
    .password-store .local/share/keyrings .local/share/kwalletd .local/share/uv/credentials
    .mozilla .thunderbird .pki .purple .claude .claude.json .codex .gemini
    .config/gcloud .config/gh .config/hub .config/glab-cli .config/git/credentials
    .config/pip .config/uv .config/containers/auth.json
    .config/google-chrome .config/chromium .config/BraveSoftware .config/Bitwarden
    .config/op .config/rclone .config/sops .config/doctl .config/heroku
    .cargo/credentials .cargo/credentials.toml .gradle/gradle.properties .m2/settings-security.xml snap/firefox";

/// Names that are credentials in any directory; `*` matches any part of a name.
const ANYWHERE: &str = "
    .ssh .gnupg .aws .azure .kube .docker .netrc _netrc .pypirc .npmrc .git-credentials .pgpass .my.cnf
    .env .vault-token .credentials* credentials.toml credentials.json credentials.xml
    id_rsa* id_dsa* id_ecdsa* id_ed25519* *.kdbx *.p12 *.pfx";

/// Names that are credentials if the file contains a secret.
const IF_SECRET: &str = "
    credentials *.pem *.key pip.conf settings*.xml gradle.properties .condarc condarc npmrc .yarnrc*
    bunfig.toml .bunfig.toml config.toml config uv.toml auth.json nuget.config";

/// Where a toolchain has such files, besides its top.
const INSIDE_TOOLCHAINS: &str = "
    .git/config .git/credentials etc/npmrc versions/*/pip.conf versions/node/*/etc/npmrc install/global/*
    envs/*/pip.conf envs/*/.condarc config/npmrc";

/// How the name of a secret ends, in lower case.
const SECRET_NAMES: &str =
    "token password passwd passphrase secret _auth apikey api_key access_key credential";

/// How many bytes of a file are searched, and in what is opened by name: how deep, and how many names.
const MAX_BYTES: u64 = 64 << 10;
const MAX_DEPTH: usize = 16;
const MAX_NAMES: usize = 20_000;

/// The credentials of the system that this user could read.
pub(super) fn of_the_system(resolver: &PathResolver) -> Vec<PathBuf> {
    // Most of them would be there.
    resolver.list(Path::new("/etc"));
    SYSTEM
        .split_whitespace()
        .flat_map(|pattern| matches(resolver, Path::new("/"), &pattern[1..]))
        .filter(|path| is_visible(path))
        .collect()
}

/// The credentials of a home, by its canonical path, that have fixed paths.
pub(super) fn of_the_home(resolver: &PathResolver, home: &Path) -> Vec<PathBuf> {
    resolver.list(home);
    let config = home.join(".config");
    if resolver.is_there(&config) {
        resolver.list(&config);
    }
    let paths = OF_A_HOME.split_whitespace().map(|below| home.join(below));
    paths
        .chain(matches(resolver, home, ".m2/settings*.xml"))
        .filter(|path| resolver.trace(path).is_some())
        .collect()
}

/// The credentials at the top of a toolchain, by its canonical path, and at known paths in it.
pub(super) fn at_the_top(resolver: &PathResolver, toolchain: &Path) -> Vec<PathBuf> {
    let top = names(resolver, toolchain);
    let inside = INSIDE_TOOLCHAINS
        .split_whitespace()
        .flat_map(|pattern| matches(resolver, toolchain, pattern));
    top.into_iter()
        .chain(inside)
        .filter(|path| is_credential(path))
        .collect()
}

/// The credentials below a path that is opened by name. Sockets and pipes are included: a read-only mount does not keep a
/// child from using them.
pub(super) fn below(resolver: &PathResolver, top: &Path) -> Vec<PathBuf> {
    let mut found = of_the_home(resolver, top);
    let (mut level, mut seen) = (vec![top.to_owned()], 0);
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            let inner = names(resolver, &folder);
            seen += inner.len();
            if MAX_NAMES < seen {
                return found;
            }
            let (credentials, others): (Vec<_>, Vec<_>) = inner
                .into_iter()
                .partition(|path| is_credential(path) || is_socket_or_pipe(path));
            found.extend(credentials);
            next.extend(others.into_iter().filter(|path| is_folder(path)));
        }
        level = next;
    }
    found
}

/// Whether a path is a credential, by its name or by name and content.
pub(super) fn is_credential(path: &Path) -> bool {
    static ALWAYS: LazyLock<Vec<&str>> = LazyLock::new(|| ANYWHERE.split_whitespace().collect());
    static BY_CONTENT: LazyLock<Vec<&str>> =
        LazyLock::new(|| IF_SECRET.split_whitespace().collect());
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    let is_one_of = |patterns: &[&str]| patterns.iter().any(|pattern| is_match(name, pattern));
    is_one_of(&ALWAYS) && !name.ends_with(".pub") || is_one_of(&BY_CONTENT) && contains_secret(path)
}

/// Whether the beginning of a file contains a private key, a named secret, or a URL with a password.
fn contains_secret(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes)
        .to_lowercase()
        .lines()
        .any(is_secret_line)
}

fn is_secret_line(line: &str) -> bool {
    let is_secret_name = |name: &str| {
        let name = name.trim_matches(|c: char| c.is_whitespace() || "\"'</".contains(c));
        SECRET_NAMES
            .split_whitespace()
            .any(|ending| name.ends_with(ending))
    };
    let has_user = |address: &str| {
        address
            .split(['/', '"', '\'', ' '])
            .next()
            .is_some_and(|host| host.contains('@'))
    };
    let named = line
        .split_once(['=', ':', '>'])
        .is_some_and(|(name, value)| is_secret_name(name) && !value.trim().is_empty());
    named || line.contains("private key-----") || line.split("://").skip(1).any(has_user)
}

/// Whether this user can read it; otherwise it needs no hiding.
fn is_visible(path: &Path) -> bool {
    access(path, Access::READ_OK).is_ok() || path.is_dir() && access(path, Access::EXEC_OK).is_ok()
}

fn is_socket_or_pipe(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_socket() || found.file_type().is_fifo())
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn names(resolver: &PathResolver, folder: &Path) -> Vec<PathBuf> {
    let names = resolver.list(folder);
    names.keys().map(|name| folder.join(name)).collect()
}

/// The existing paths below a canonical directory that match a pattern of names with `*`.
fn matches(resolver: &PathResolver, top: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    for part in pattern.split('/') {
        found = match part.contains('*') {
            false => found
                .into_iter()
                .map(|folder| folder.join(part))
                .filter(|path| resolver.is_there(path))
                .collect(),
            true => found
                .iter()
                .flat_map(|folder| names(resolver, folder))
                .filter(|path| is_named(path, part))
                .collect(),
        };
    }
    found
}

fn is_named(path: &Path, pattern: &str) -> bool {
    path.file_name()
        .and_then(OsStr::to_str)
        .is_some_and(|name| is_match(name, pattern))
}

/// Whether a name matches a pattern with at most one `*`.
fn is_match(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, tail)) => {
            head.len() + tail.len() <= name.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}
