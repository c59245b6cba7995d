//! The environment variables of a check, and the lookup of its programs.
//!
//! The environment is built from scratch: only the caller's variables that are listed here pass. Nothing here reads the
//! process environment. A program is never taken from the workspace unless the command names it with a `/`.

use std::collections::BTreeMap;
use std::env::{join_paths, split_paths};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::sandbox::trace::PathResolver;

/// Values that make output reproducible and programs non-interactive. Like the tables below: `NAME=VALUE`, with white space
/// between them.
const FIXED: &str = "
    TZ=UTC COLUMNS=200 NO_COLOR=1 TERM=dumb PAGER=cat GIT_PAGER=cat MANPAGER=cat GIT_EDITOR=true GIT_TERMINAL_PROMPT=0
    PYTHONDONTWRITEBYTECODE=1 PYTHONHASHSEED=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1";

/// Variables for directories below the home.
const BELOW_HOME: &str = "XDG_CACHE_HOME=.cache XDG_CONFIG_HOME=.config XDG_DATA_HOME=.local/share";

/// Variables for the caches of compilers and installers.
const CACHES: &str = "
    GOCACHE=go-build CARGO_TARGET_DIR=cargo-target npm_config_cache=npm PIP_CACHE_DIR=pip UV_CACHE_DIR=uv
    GRADLE_USER_HOME=gradle CCACHE_DIR=ccache";

/// Makes toolchains use their caches instead of waiting for a network.
const OFFLINE: &str =
    "CARGO_NET_OFFLINE=true GOPROXY=off UV_OFFLINE=1 PIP_NO_INDEX=1 npm_config_offline=true";

/// The caller's variables that pass if the network is open.
const NETWORK: [&str; 7] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
];

/// Variables for the user's toolchains, with the default below the real home.
const TOOLCHAINS: [(&str, Option<&str>); 7] = [
    ("RUSTUP_HOME", Some(".rustup")),
    ("CARGO_HOME", Some(".cargo")),
    ("PYENV_ROOT", Some(".pyenv")),
    ("PYTHONUSERBASE", Some(".local")),
    ("GOMODCACHE", Some("go/pkg/mod")),
    ("JAVA_HOME", None),
    ("VIRTUAL_ENV", None),
];

/// The caller's variables that checks need.
#[derive(Debug, Clone, Default)]
pub struct CallerEnv {
    variables: BTreeMap<OsString, OsString>,
}

impl CallerEnv {
    /// Keeps what checks need of the caller's variables, and drops the rest, keys above all.
    pub fn new(variables: impl IntoIterator<Item = (OsString, OsString)>) -> CallerEnv {
        let is_needed = |name: &OsStr| {
            ["PATH", "LANG", "HOME", "GOPATH"]
                .iter()
                .chain(&NETWORK)
                .any(|needed| name == *needed)
                || TOOLCHAINS.iter().any(|(needed, _)| name == *needed)
        };
        let kept = variables
            .into_iter()
            .filter(|(name, value)| is_needed(name) && !value.is_empty());
        CallerEnv {
            variables: kept.collect(),
        }
    }

    /// The caller's PATH, unchanged.
    pub fn path(&self) -> &OsStr {
        self.value("PATH").unwrap_or_default()
    }

    /// The user's home, if it is absolute and not `/`.
    pub fn home(&self) -> Option<&Path> {
        self.value("HOME")
            .map(Path::new)
            .filter(|home| home.is_absolute() && home.parent().is_some())
    }

    /// The toolchain directories that the caller's variables name.
    pub fn named_toolchains(&self) -> Vec<PathBuf> {
        let named = TOOLCHAINS
            .iter()
            .filter_map(|(name, _)| self.value(name))
            .map(PathBuf::from);
        let of_go = self
            .value("GOPATH")
            .into_iter()
            .flat_map(split_paths)
            .map(|path| path.join("pkg/mod"));
        named
            .chain(of_go)
            .filter(|path| path.is_absolute())
            .collect()
    }

    /// The caller's SSL_CERT_FILE.
    pub fn certificates(&self) -> Option<&Path> {
        self.value("SSL_CERT_FILE")
            .map(Path::new)
            .filter(|file| file.is_absolute())
    }

    fn value(&self, name: &str) -> Option<&OsStr> {
        self.variables
            .get(OsStr::new(name))
            .map(OsString::as_os_str)
    }

    /// The variables for the user's toolchains, which a private home would hide; none points into the workspace, or to
    /// what the sandbox hides.
    pub fn toolchains(&self, dirs: &ChildDirs<'_>) -> Vec<(OsString, OsString)> {
        let workspace = WorkspacePaths::new(dirs.workspace);
        let is_usable = |path: &PathBuf| {
            path.is_dir() && workspace.is_outside(path) && dirs.shows(path, &workspace)
        };
        let found = TOOLCHAINS.iter().filter_map(|(name, below_home)| {
            let path = self.toolchain(name, *below_home).filter(is_usable)?;
            Some((OsString::from(name), path.into_os_string()))
        });
        let mut all: Vec<_> = found.collect();
        if !all.iter().any(|(name, _)| name == "PYTHONUSERBASE") {
            all.push(("PYTHONNOUSERSITE".into(), "1".into()));
        }
        let gradle = self
            .home()
            .map(|home| home.join(".gradle/caches"))
            .filter(is_usable);
        all.extend(gradle.map(|caches| ("GRADLE_RO_DEP_CACHE".into(), caches.into_os_string())));
        all
    }

    fn toolchain(&self, name: &str, below_home: Option<&str>) -> Option<PathBuf> {
        let named = self.value(name).map(PathBuf::from);
        let of_go = self.value("GOPATH").filter(|_| name == "GOMODCACHE");
        let of_go = of_go
            .and_then(|path| split_paths(path).next())
            .map(|first| first.join("pkg/mod"));
        let usual = self
            .home()
            .zip(below_home)
            .map(|(home, below)| home.join(below));
        named.or(of_go).or(usual)
    }

    /// The variables for the network: the caller's proxies, or what makes toolchains work offline.
    pub fn network(&self, is_open: bool) -> Vec<(OsString, OsString)> {
        if !is_open {
            return assignments(OFFLINE, |value| value.into()).collect();
        }
        NETWORK
            .iter()
            .filter_map(|name| Some((name.into(), self.value(name)?.to_owned())))
            .collect()
    }
}

/// The directories of a child.
#[derive(Debug, Clone, Copy)]
pub struct ChildDirs<'a> {
    pub workspace: &'a Path,
    pub tmp: &'a Path,
    pub home: &'a Path,
    /// Compiler caches that outlive the child.
    pub cache: Option<&'a Path>,
    pub network: bool,
    pub policy: Option<&'a SandboxPolicy>,
}

impl ChildDirs<'_> {
    /// The variables for caches and private directories.
    pub fn variables(&self) -> Vec<(OsString, OsString)> {
        let fresh = self.tmp.join("cache");
        let cache = self.cache.unwrap_or(&fresh);
        let of_home = assignments(BELOW_HOME, |below| self.home.join(below).into());
        let of_caches = assignments(CACHES, |below| cache.join(below).into());
        of_home.chain(of_caches).collect()
    }

    /// Whether an existing path exists inside, too.
    fn shows(&self, path: &Path, workspace: &WorkspacePaths<'_>) -> bool {
        self.policy
            .is_none_or(|policy| policy.shows(&workspace.resolver.real(path)))
    }
}

/// The whole environment of a check, sorted by name; values of the spec take precedence.
pub(crate) fn for_check(
    base: &CallerEnv,
    dirs: &ChildDirs<'_>,
    spec_env: &BTreeMap<String, String>,
) -> Vec<(OsString, OsString)> {
    let workspace = WorkspacePaths::new(dirs.workspace);
    let entries =
        trusted_entries(base.path(), &workspace).filter(|entry| dirs.shows(entry, &workspace));
    let mut all: BTreeMap<OsString, OsString> = assignments(FIXED, |value| value.into()).collect();
    all.insert("PATH".into(), join_paths(entries).unwrap_or_default());
    all.insert(
        "LANG".into(),
        base.value("LANG")
            .unwrap_or(OsStr::new("C.UTF-8"))
            .to_owned(),
    );
    all.insert("HOME".into(), dirs.home.into());
    all.insert("TMPDIR".into(), dirs.tmp.into());
    all.insert("PYTHONPATH".into(), dirs.workspace.into());
    all.extend(dirs.variables());
    all.extend(base.toolchains(dirs));
    all.extend(base.network(dirs.network));
    all.extend(
        spec_env
            .iter()
            .map(|(name, value)| (name.into(), value.into())),
    );
    all.into_iter().collect()
}

/// The variables of a table of `NAME=VALUE`, with what is made of each value.
pub(super) fn assignments(
    table: &'static str,
    value: impl Fn(&str) -> OsString,
) -> impl Iterator<Item = (OsString, OsString)> {
    let pairs = table
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    pairs.map(move |(name, word)| (name.into(), value(word)))
}

/// Whether a variable names the directory of a toolchain.
pub(crate) fn is_toolchain_variable(name: &OsStr) -> bool {
    TOOLCHAINS.iter().any(|(known, _)| name == *known)
}

/// Finds a program on a `PATH`, as a job in `workspace` does: relative and empty entries and those inside it are skipped.
pub fn find_program(path: &OsStr, name: &OsStr, workspace: &Path) -> Option<PathBuf> {
    let workspace = WorkspacePaths::new(workspace);
    let mut candidates = trusted_entries(path, &workspace).map(|entry| entry.join(name));
    candidates.find(|program| program.is_file() && access(program, Access::EXEC_OK).is_ok())
}

pub(super) fn trusted_entries(
    path: &OsStr,
    workspace: &WorkspacePaths<'_>,
) -> impl Iterator<Item = PathBuf> {
    split_paths(path).filter(move |entry| workspace.is_outside(entry))
}

/// The path of the workspace, literal and canonical, for many comparisons.
pub(super) struct WorkspacePaths<'a> {
    literal: &'a Path,
    pub(super) real: PathBuf,
    resolver: PathResolver,
}

impl WorkspacePaths<'_> {
    pub(super) fn new(literal: &Path) -> WorkspacePaths<'_> {
        let resolver = PathResolver::default();
        WorkspacePaths {
            literal,
            real: resolver.real(literal),
            resolver,
        }
    }

    /// Whether a path is outside, literally and after resolving links.
    fn is_outside(&self, path: &Path) -> bool {
        path.is_absolute()
            && !path.starts_with(self.literal)
            && !self.resolver.real(path).starts_with(&self.real)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ffi::{OsStr, OsString};
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::path::Path;

    use super::{CallerEnv, ChildDirs, find_program, for_check};

    fn environment(
        caller: &[(&str, &str)],
        root: &Path,
        spec: &[(&str, &str)],
    ) -> BTreeMap<String, String> {
        let base = CallerEnv::new(
            caller
                .iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
        );
        let (workspace, tmp, home) = (root.join("workspace"), root.join("tmp"), root.join("home"));
        let spec = spec
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        let dirs = ChildDirs {
            workspace: &workspace,
            tmp: &tmp,
            home: &home,
            cache: None,
            network: false,
            policy: None,
        };
        let all = for_check(&base, &dirs, &spec);
        all.into_iter()
            .map(|(name, value)| (name.into_string().unwrap(), value.into_string().unwrap()))
            .collect()
    }

    fn root() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("workspace/bin")).unwrap();
        root
    }

    #[test]
    fn only_listed_variables_of_the_caller_pass() {
        let caller = [
            ("PATH", "/usr/bin"),
            ("HOME", "/nowhere"),
            ("LD_PRELOAD", "/evil.so"),
            ("PYTHONSTARTUP", "x"),
            ("PYTHONHASHSEED", "random"),
            ("EDITOR", "vi"),
            ("GIT_DIR", "x"),
            ("TMPDIR", "x"),
            ("ANTHROPIC_API_KEY", "secret"),
        ];
        let root = root();
        let all = environment(&caller, root.path(), &[]);
        let below = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(
            (&all["PATH"], &all["LANG"]),
            (&"/usr/bin".to_owned(), &"C.UTF-8".to_owned())
        );
        assert_eq!(
            (&all["HOME"], &all["TMPDIR"]),
            (&below("home"), &below("tmp"))
        );
        assert_eq!(
            (&all["PYTHONPATH"], &all["PYTHONNOUSERSITE"]),
            (&below("workspace"), &"1".to_owned())
        );
        assert_eq!(all["PYTHONHASHSEED"], "0");
        for name in [
            "LD_PRELOAD",
            "PYTHONSTARTUP",
            "EDITOR",
            "GIT_DIR",
            "ANTHROPIC_API_KEY",
            "RUSTUP_HOME",
        ] {
            assert!(!all.contains_key(name), "{name}");
        }
    }

    #[test]
    fn values_of_the_spec_take_precedence() {
        let root = root();
        let all = environment(
            &[("PATH", "/usr/bin")],
            root.path(),
            &[("PATH", "/opt"), ("TZ", "CET"), ("A", "b")],
        );
        assert_eq!([&all["PATH"], &all["TZ"], &all["A"]], ["/opt", "CET", "b"]);
    }

    #[test]
    fn entries_of_path_in_the_workspace_are_dropped() {
        let root = root();
        let inside = root.path().join("workspace/bin");
        symlink(&inside, root.path().join("link")).unwrap();
        let path = format!(
            ".::bin:/usr/bin:{}:{}:/bin",
            inside.display(),
            root.path().join("link").display()
        );
        assert_eq!(
            environment(&[("PATH", &path)], root.path(), &[])["PATH"],
            "/usr/bin:/bin"
        );
    }

    #[test]
    fn toolchains_of_the_real_home_stay_reachable() {
        let root = root();
        let home = root.path().join("user");
        for folder in [
            "user/.cargo",
            "user/.local",
            "elsewhere/rustup",
            "go/pkg/mod",
            "workspace/venv",
        ] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let below = |name: &str| root.path().join(name).to_str().unwrap().to_owned();
        let (rustup, go, venv) = (
            below("elsewhere/rustup"),
            below("go"),
            below("workspace/venv"),
        );
        let caller = [
            ("HOME", home.to_str().unwrap()),
            ("RUSTUP_HOME", rustup.as_str()),
            ("GOPATH", &go),
            ("VIRTUAL_ENV", &venv),
        ];
        let all = environment(&caller, root.path(), &[]);
        assert_eq!(
            (&all["RUSTUP_HOME"], &all["CARGO_HOME"]),
            (&rustup, &below("user/.cargo"))
        );
        assert_eq!(
            (&all["GOMODCACHE"], &all["PYTHONUSERBASE"]),
            (&below("go/pkg/mod"), &below("user/.local"))
        );
        for name in [
            "PYENV_ROOT",
            "VIRTUAL_ENV",
            "JAVA_HOME",
            "PYTHONNOUSERSITE",
            "GOPATH",
        ] {
            assert!(!all.contains_key(name), "{name}");
        }
    }

    #[test]
    fn a_program_is_an_executable_file_outside_the_workspace() {
        let root = root();
        let (first, second) = (root.path().join("first"), root.path().join("second"));
        fs::create_dir_all(first.join("folder")).unwrap();
        fs::create_dir(&second).unwrap();
        for (path, mode) in [(first.join("tool"), 0o644), (second.join("tool"), 0o755)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = std::env::join_paths([Path::new("."), &first, &second]).unwrap();
        let find = |name: &str, workspace: &Path| find_program(&path, OsStr::new(name), workspace);
        assert_eq!(
            find("tool", &root.path().join("workspace")),
            Some(second.join("tool"))
        );
        assert_eq!(find("tool", &second), None);
        assert_eq!(find("folder", &root.path().join("workspace")), None);
    }
}
