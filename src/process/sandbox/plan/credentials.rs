//! What must not be seen in places that may be read: keys, tokens and passwords.
//!
//! Known by their names, and where a name says too little by what stands in them. The search is bounded: the top of a
//! toolchain, and of what the user opens by name the first folders and names.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// What the system keeps for root; `*` stands for the rest of a name.
const SYSTEM: [&str; 34] = [
    "/etc/shadow*",
    "/etc/gshadow*",
    "/etc/sudoers*",
    "/etc/security/opasswd",
    "/etc/ssh/*_key",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/pki/*/private",
    "/etc/letsencrypt",
    "/etc/krb5.keytab",
    "/etc/NetworkManager/system-connections",
    "/etc/netplan",
    "/etc/wpa_supplicant",
    "/etc/wireguard",
    "/etc/openvpn",
    "/etc/ipsec.secrets",
    "/etc/ipsec.d/private",
    "/etc/ppp/*-secrets",
    "/etc/cryptsetup-keys.d",
    "/etc/docker/key.json",
    "/etc/kubernetes",
    "/etc/rancher",
    "/etc/mysql/debian.cnf",
    "/etc/samba/private",
    "/etc/cups/ssl",
    "/etc/dovecot/private",
    "/etc/postfix/sasl*",
    "/etc/msmtprc",
    "/etc/netrc",
    "/etc/boto.cfg",
    "/etc/credstore*",
    "/run/user",
    "/run/docker.sock",
    "/run/dbus",
];

/// Folders and files of a home that hold credentials, wherever such a home lies.
const OF_A_HOME: [&str; 60] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".yarnrc.yml",
    ".pypirc",
    ".git-credentials",
    ".gem/credentials",
    ".bundle/config",
    ".vault-token",
    ".pgpass",
    ".my.cnf",
    ".s3cfg",
    ".boto",
    ".databrickscfg",
    ".terraform.d",
    ".terraformrc",
    ".pulumi",
    ".fly",
    ".railway",
    ".oci",
    ".password-store",
    ".local/share/keyrings",
    ".local/share/kwalletd",
    ".local/share/uv/credentials",
    ".mozilla",
    ".thunderbird",
    ".pki",
    ".purple",
    ".claude",
    ".claude.json",
    ".codex",
    ".gemini",
    ".config/gcloud",
    ".config/gh",
    ".config/hub",
    ".config/glab-cli",
    ".config/git/credentials",
    ".config/pip",
    ".config/uv",
    ".config/containers/auth.json",
    ".config/google-chrome",
    ".config/chromium",
    ".config/BraveSoftware",
    ".config/Bitwarden",
    ".config/op",
    ".config/rclone",
    ".config/sops",
    ".config/doctl",
    ".config/heroku",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".gradle/gradle.properties",
    ".m2/settings-security.xml",
    "snap/firefox",
];

/// Names that are credentials in any folder; `*` stands for the rest of a name.
const ANYWHERE: [&str; 26] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".netrc",
    "_netrc",
    ".pypirc",
    ".npmrc",
    ".git-credentials",
    ".pgpass",
    ".my.cnf",
    ".env",
    ".vault-token",
    ".credentials*",
    "credentials.toml",
    "credentials.json",
    "credentials.xml",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.kdbx",
    "*.p12",
    "*.pfx",
];

/// Names that are credentials where a secret stands in them.
const WHERE_SECRET: [&str; 17] = [
    "credentials",
    "*.pem",
    "*.key",
    "pip.conf",
    "settings*.xml",
    "gradle.properties",
    ".condarc",
    "condarc",
    "npmrc",
    ".yarnrc*",
    "bunfig.toml",
    ".bunfig.toml",
    "config.toml",
    "config",
    "uv.toml",
    "auth.json",
    "nuget.config",
];

/// Where in a toolchain such files are, besides its top.
const INSIDE_TOOLCHAINS: [&str; 9] = [
    ".git/config",
    ".git/credentials",
    "etc/npmrc",
    "versions/*/pip.conf",
    "versions/node/*/etc/npmrc",
    "install/global/*",
    "envs/*/pip.conf",
    "envs/*/.condarc",
    "config/npmrc",
];

/// How the name of a secret ends, in lower case.
const SECRETS: [&str; 10] = [
    "token",
    "password",
    "passwd",
    "passphrase",
    "secret",
    "_auth",
    "apikey",
    "api_key",
    "access_key",
    "credential",
];

/// How much of a file is looked at, and of what is opened by name: how deep, and how many names in all.
const LOOKED_AT: u64 = 64 << 10;
const MAX_DEPTH: usize = 16;
const MAX_NAMES: usize = 20_000;

/// Returns what the system hides from everybody, as far as this user could see it.
pub(super) fn of_the_system() -> Vec<PathBuf> {
    SYSTEM
        .iter()
        .flat_map(|pattern| matches(Path::new("/"), &pattern[1..]))
        .filter(|path| is_visible(path))
        .collect()
}

/// Returns the credentials of a home that have their fixed places.
pub(super) fn of_the_home(home: &Path) -> Vec<PathBuf> {
    let places = OF_A_HOME.iter().map(|below| home.join(below));
    places
        .chain(matches(home, ".m2/settings*.xml"))
        .filter(|path| path.exists())
        .collect()
}

/// Returns the credentials at the top of a toolchain, and in the few places inside where they are known to be.
pub(super) fn at_the_top(toolchain: &Path) -> Vec<PathBuf> {
    let inside = INSIDE_TOOLCHAINS
        .iter()
        .flat_map(|pattern| matches(toolchain, pattern));
    let inside = inside.filter(|path| is_credential(path));
    names(toolchain)
        .into_iter()
        .filter(|path| is_credential(path))
        .chain(inside)
        .collect()
}

/// Returns the credentials in something that is opened by name (but is none itself), as deep as the search goes; a
/// socket or a pipe is one, for a read-only mount keeps nobody from talking to whoever listens.
pub(super) fn below(top: &Path) -> Vec<PathBuf> {
    let mut found = of_the_home(top);
    let (mut level, mut seen) = (vec![top.to_owned()], 0);
    for _ in 0..MAX_DEPTH {
        let mut next = Vec::new();
        for folder in level {
            let inner = names(&folder);
            seen += inner.len();
            if MAX_NAMES < seen {
                return found;
            }
            let (credentials, others): (Vec<_>, Vec<_>) = inner
                .into_iter()
                .partition(|path| is_credential(path) || leads_to_somebody(path));
            found.extend(credentials);
            next.extend(others.into_iter().filter(|path| is_folder(path)));
        }
        level = next;
    }
    found
}

/// Whether a path is a credential by its name, or by that and what stands in it.
pub(super) fn is_credential(path: &Path) -> bool {
    let Some(name) = path.file_name().and_then(OsStr::to_str) else {
        return false;
    };
    ANYWHERE.iter().any(|pattern| is_match(name, pattern)) && !name.ends_with(".pub")
        || WHERE_SECRET.iter().any(|pattern| is_match(name, pattern)) && holds_a_secret(path)
}

/// Whether the beginning of a file holds a secret: a private key, a named one, or an address with a password in it.
fn holds_a_secret(path: &Path) -> bool {
    if !fs::symlink_metadata(path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    let mut bytes = Vec::new();
    let _ = File::open(path).and_then(|file| file.take(LOOKED_AT).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes)
        .to_lowercase()
        .lines()
        .any(is_secret_line)
}

fn is_secret_line(line: &str) -> bool {
    let names_one = |name: &str| {
        let name = name.trim_matches(|c: char| c.is_whitespace() || "\"'</".contains(c));
        SECRETS.iter().any(|ending| name.ends_with(ending))
    };
    let has_user = |address: &str| {
        address
            .split(['/', '"', '\'', ' '])
            .next()
            .is_some_and(|host| host.contains('@'))
    };
    let named = line
        .split_once(['=', ':', '>'])
        .is_some_and(|(name, value)| names_one(name) && !value.trim().is_empty());
    named || line.contains("private key-----") || line.split("://").skip(1).any(has_user)
}

/// Whether this user could see anything of it at all; what no program of the user's can open needs no hiding.
fn is_visible(path: &Path) -> bool {
    access(path, Access::READ_OK).is_ok() || path.is_dir() && access(path, Access::EXEC_OK).is_ok()
}

fn leads_to_somebody(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .is_ok_and(|found| found.file_type().is_socket() || found.file_type().is_fifo())
}

fn is_folder(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

fn names(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .take(MAX_NAMES)
        .collect()
}

/// Returns the paths below a folder that a pattern of plain names and `*` stands for, as far as they are there.
fn matches(top: &Path, pattern: &str) -> Vec<PathBuf> {
    let mut found = vec![top.to_owned()];
    for part in pattern.split('/') {
        found = match part.contains('*') {
            false => found
                .into_iter()
                .map(|folder| folder.join(part))
                .filter(|path| fs::symlink_metadata(path).is_ok())
                .collect(),
            true => found
                .iter()
                .flat_map(|folder| names(folder))
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

/// Whether a name fits a pattern with at most one `*`.
fn is_match(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((head, tail)) => {
            head.len() + tail.len() <= name.len() && name.starts_with(head) && name.ends_with(tail)
        }
    }
}
