//! What a policy allows in small directory trees with a home, a root and links.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::{PolicyPlan, refusal, sandbox_policy};
use crate::process::check_env::CallerEnv;
use crate::process::sandbox::policy::{PathAccess, ResourceLimits, SandboxMode, SandboxPolicy};

/// A directory tree with a home, and a root with a workspace.
struct Tree {
    top: tempfile::TempDir,
    home: &'static str,
    root: &'static str,
    variables: Vec<(String, String)>,
    read: Vec<&'static str>,
    originals: Vec<&'static str>,
    network: bool,
}

impl Tree {
    fn new() -> Tree {
        let top = tempfile::Builder::new()
            .prefix("policy-")
            .tempdir()
            .unwrap();
        let tree = Tree {
            top,
            home: "home/me",
            root: "home/me/project",
            variables: Vec::new(),
            read: Vec::new(),
            originals: Vec::new(),
            network: false,
        };
        tree.files(&[
            "home/me/project/workspace/x",
            "home/me/project/state.json",
            "home/me/private.txt",
        ])
    }

    fn at(&self, below: &str) -> PathBuf {
        self.top.path().canonicalize().unwrap().join(below)
    }

    fn files(self, files: &[&str]) -> Tree {
        files.iter().for_each(|file| self.file(file, "x\n"));
        self
    }

    fn file(&self, file: &str, content: &str) {
        let path = self.at(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    fn link(&self, link: &str, target: &str) {
        fs::create_dir_all(self.at(link).parent().unwrap()).unwrap();
        symlink(target, self.at(link)).unwrap();
    }

    fn path(mut self, entries: &[&str]) -> Tree {
        let entries: Vec<String> = entries
            .iter()
            .map(|entry| self.at(entry).display().to_string())
            .collect();
        self.variables.push((
            "PATH".into(),
            format!("/usr/bin:/bin:.::relative:{}", entries.join(":")),
        ));
        self
    }

    fn policy(&self) -> SandboxPolicy {
        let home = ("HOME".to_owned(), self.at(self.home).display().to_string());
        self.policy_with(self.variables.iter().cloned().chain([home]))
    }

    fn policy_with(&self, variables: impl IntoIterator<Item = (String, String)>) -> SandboxPolicy {
        let variables = variables
            .into_iter()
            .map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let read: Vec<PathBuf> = self.read.iter().map(|path| self.at(path)).collect();
        let originals: Vec<PathBuf> = self.originals.iter().map(|path| self.at(path)).collect();
        let root = self.at(self.root);
        sandbox_policy(&PolicyPlan {
            mode: SandboxMode::Full,
            workspace: &root.join("workspace"),
            root: Some(&root),
            base: &CallerEnv::new(variables),
            read: &read,
            originals: &originals,
            freeze: &[],
            private: None,
            devices: &[],
            network: self.network,
            limits: ResourceLimits::default(),
        })
    }

    /// Expects what may be done with each path: `w`, `r` or `-`.
    fn expect(&self, policy: &SandboxPolicy, expected: &[(&str, char)]) {
        for (path, wanted) in expected {
            let reach = match policy.reach(&self.at(path)) {
                PathAccess::Write => 'w',
                PathAccess::Read => 'r',
                PathAccess::Nothing => '-',
            };
            assert_eq!(reach, *wanted, "{path}: {policy:#?}");
        }
    }
}

#[test]
fn the_system_is_readable_without_its_credentials() {
    let policy = Tree::new().policy();
    for path in ["/usr/bin", "/etc/passwd"] {
        assert_eq!(policy.reach(Path::new(path)), PathAccess::Read, "{path}");
    }
    for path in [
        "/",
        "/etc/shadow",
        "/var",
        "/var/tmp",
        "/root",
        "/home",
        "/run",
        "/srv",
        "/mnt",
        "/boot",
        "/proc",
    ] {
        let is_hidden = policy.reach(Path::new(path)) == PathAccess::Nothing;
        // A user other than root cannot read it anyway.
        assert!(is_hidden || fs::File::open(path).is_err(), "{path}");
    }
    let bin = fs::symlink_metadata("/bin").unwrap();
    let is_linked = policy
        .links
        .contains(&("/bin".into(), fs::read_link("/bin").unwrap_or_default()));
    assert_eq!(bin.is_symlink(), is_linked, "{:?}", policy.links);
    assert!(
        policy
            .read
            .iter()
            .all(|path| path.is_absolute() && path.canonicalize().unwrap() == *path)
    );
}

#[test]
fn only_toolchains_of_the_home_and_the_workspace_of_the_root_are_visible() {
    let tree = Tree::new().files(&[
        "home/me/.cargo/bin/cargo",
        "home/me/.cargo/credentials.toml",
        "home/me/.cargo/credentials",
        "home/me/.local/bin/x",
        "home/me/.local/share/uv/tools/x",
        "home/me/.local/share/uv/credentials/c",
        "home/me/.local/share/app/db",
        "home/me/.m2/repository/x",
        "home/me/.m2/settings.xml",
        "home/me/.gradle/caches/x",
        "home/me/.gradle/gradle.properties",
        "home/me/.ssh/id_rsa",
        "home/me/.condarc",
        "home/me/project/logs/x.log",
        "home/me/project/specs/secret/t.py",
    ]);
    let policy = tree.policy();
    tree.expect(
        &policy,
        &[
            ("home/me", '-'),
            ("home/me/private.txt", '-'),
            ("home/me/.cargo/bin/cargo", 'r'),
            ("home/me/.cargo/credentials.toml", '-'),
            ("home/me/.cargo/credentials", '-'),
            ("home/me/.local/bin/x", 'r'),
            ("home/me/.local/share/uv/tools/x", 'r'),
            ("home/me/.local/share/uv/credentials/c", '-'),
            ("home/me/.local/share/app/db", '-'),
            ("home/me/.m2/repository/x", 'r'),
            ("home/me/.m2/settings.xml", '-'),
            ("home/me/.gradle/caches/x", 'r'),
            ("home/me/.gradle/gradle.properties", '-'),
            ("home/me/.ssh/id_rsa", '-'),
            ("home/me/.condarc", '-'),
            ("home/me/project", '-'),
            ("home/me/project/state.json", '-'),
            ("home/me/project/logs/x.log", '-'),
            ("home/me/project/specs/secret/t.py", '-'),
            ("home/me/project/workspace/x", 'w'),
            ("home/me/project/workspace-evil/x", '-'),
        ],
    );
    assert_eq!(policy.write, [tree.at("home/me/project/workspace")]);
    assert_eq!(
        (policy.tmp.as_path(), policy.home.file_name().unwrap()),
        (Path::new("/tmp"), "orchestrator".as_ref())
    );
}

#[test]
fn an_entry_of_path_opens_its_parent_but_never_the_home() {
    let tree = Tree::new()
        .files(&[
            "home/me/tools/x/bin/tool",
            "home/me/tools/x/lib/l",
            "home/me/bin/own",
            "home/me/.config/bin/c",
        ])
        .files(&[
            "home/me/.config/secret",
            "home/me/.local/bin/t",
            "home/me/.local/share/app/db",
        ])
        .files(&[
            "home/me/project/.venv/bin/python",
            "home/me/project/bin/helper",
            "elsewhere/bin/foreign",
        ])
        .path(&[
            "home/me/tools/x/bin",
            "home/me/bin",
            "home/me/.config/bin",
            "home/me/.local/bin",
            "home/me",
            "missing",
        ])
        .files(&["home/me/project/.venv/lib/site.py"]);
    let more = format!(
        "{}:{}:{}:{}",
        tree.variables[0].1,
        tree.at("home/me/project/.venv/bin").display(),
        tree.at("home/me/project/bin").display(),
        tree.at("elsewhere/bin").display()
    );
    let tree = Tree {
        variables: vec![("PATH".into(), more)],
        ..tree
    };
    tree.expect(
        &tree.policy(),
        &[
            ("home/me/tools/x/bin/tool", 'r'),
            ("home/me/tools/x/lib/l", 'r'),
            ("home/me/tools", '-'),
            ("home/me/bin/own", 'r'),
            ("home/me/private.txt", '-'),
            ("home/me/.config/bin/c", 'r'),
            ("home/me/.config/secret", '-'),
            ("home/me/.local/bin/t", 'r'),
            ("home/me/.local/share/app/db", '-'),
            ("home/me/project/.venv/lib/site.py", 'r'),
            ("home/me/project/bin/helper", 'r'),
            ("home/me/project/state.json", '-'),
            ("elsewhere/bin/foreign", '-'),
        ],
    );
}

#[test]
fn links_are_followed_and_recreated() {
    let tree = Tree::new().files(&[
        "disk/cargo/bin/cargo",
        "disk/node/v1/bin/node",
        "disk/node/v1/lib/l",
        "disk/o",
    ]);
    tree.link(
        "home/me/.cargo",
        &tree.at("disk/cargo").display().to_string(),
    );
    tree.link("home/me/apps/node/current", "../../../../disk/node/v1");
    tree.link("home/me/bin/node", "../apps/node/current/bin/node");
    tree.link("home/me/bin/secret", "../.ssh");
    tree.link("home/me/bin/home", "..");
    tree.link("home/me/bin/loop", "loop");
    let tree = tree
        .files(&["home/me/.ssh/id_rsa"])
        .path(&["home/me/bin", "home/me/apps/node/current/bin"]);
    let policy = tree.policy();
    tree.expect(
        &policy,
        &[
            ("disk/cargo/bin/cargo", 'r'),
            ("disk/node/v1/lib/l", 'r'),
            ("disk/o", '-'),
            ("home/me/.ssh/id_rsa", '-'),
            ("home/me/private.txt", '-'),
        ],
    );
    let links: Vec<&Path> = policy
        .links
        .iter()
        .map(|(path, _)| path.as_path())
        .collect();
    assert!(
        links.contains(&tree.at("home/me/.cargo").as_path()),
        "{links:?}"
    );
    assert!(
        links.contains(&tree.at("home/me/apps/node/current").as_path()),
        "{links:?}"
    );
    // This one is in a readable directory.
    assert!(
        !links.contains(&tree.at("home/me/bin/node").as_path()),
        "{links:?}"
    );
}

#[test]
fn a_home_behind_a_link_is_the_same_home() {
    let tree = Tree::new().files(&[
        "disk/me/.cargo/bin/cargo",
        "disk/me/private.txt",
        "disk/me/t/x/bin/y",
    ]);
    tree.link("people", "disk");
    let tree = Tree {
        home: "people/me",
        ..tree
    }
    .path(&["people/me/t/x/bin"]);
    let policy = tree.policy();
    tree.expect(
        &policy,
        &[
            ("disk/me/.cargo/bin/cargo", 'r'),
            ("disk/me/private.txt", '-'),
            ("disk/me/t/x/bin/y", 'r'),
        ],
    );
    assert!(
        policy.links.contains(&(tree.at("people"), "disk".into())),
        "{:?}",
        policy.links
    );
}

#[test]
fn a_root_in_a_readable_directory_shows_only_its_workspace() {
    let tree = Tree::new().files(&[
        "home/me/go/src/p/state.json",
        "home/me/go/src/p/workspace/x",
        "home/me/go/src/q",
    ]);
    let tree = Tree {
        root: "home/me/go/src/p",
        ..tree
    };
    let policy = tree.policy();
    tree.expect(
        &policy,
        &[
            ("home/me/go/src/q", 'r'),
            ("home/me/go/src/p/state.json", '-'),
            ("home/me/go/src/p", '-'),
            ("home/me/go/src/p/workspace/x", 'w'),
        ],
    );
}

#[test]
fn toolchains_stay_readable_if_the_root_is_the_home() {
    let tree = Tree::new().files(&[
        "home/me/.cargo/bin/cargo",
        "home/me/workspace/x",
        "home/me/bin/tool",
    ]);
    let tree = Tree {
        root: "home/me",
        ..tree
    }
    .path(&["home/me/bin"]);
    tree.expect(
        &tree.policy(),
        &[
            ("home/me/.cargo/bin/cargo", 'r'),
            ("home/me/workspace/x", 'w'),
            ("home/me/bin/tool", 'r'),
            ("home/me/private.txt", '-'),
        ],
    );
}

#[test]
fn a_named_path_is_readable_without_credentials_below_it() {
    let tree = Tree::new()
        .files(&[
            "home/me/project/sdk/lib",
            "home/me/project/specs/secret/t.py",
            "home/me/project/specs/open.txt",
        ])
        .files(&[
            "sdk/deep/er/.aws/credentials",
            "sdk/.netrc",
            "sdk/lib/credentials.py",
            "sdk/id_rsa",
            "sdk/id_rsa.pub",
        ])
        .files(&[
            "secrets/.aws/credentials",
            "home/me/.ssh/config",
            "home/me/notes",
        ]);
    tree.file("sdk/config.toml", "[registry]\ntoken = \"abc\"\n");
    tree.file(
        "sdk/lib/config.toml",
        "tokenizer = \"bert\"\nurl = \"https://example.org/a@b\"\n",
    );
    tree.file("sdk/key.pem", "-----BEGIN PRIVATE KEY-----\nabc\n");
    tree.file("sdk/cert.pem", "-----BEGIN CERTIFICATE-----\nabc\n");
    tree.file(
        "sdk/pip.conf",
        "[global]\nindex-url = https://me:pw@example.org/simple\n",
    );
    let tree = Tree {
        read: vec![
            "home/me/project/sdk",
            "home/me/project/specs",
            "sdk",
            "secrets/.aws",
            "missing",
            "home/me/project",
        ],
        originals: vec!["home/me/project/specs/secret"],
        ..tree
    };
    let policy = tree.policy();
    tree.expect(
        &policy,
        &[
            ("home/me/project/sdk/lib", 'r'),
            ("home/me/project/specs/open.txt", 'r'),
            ("home/me/project/specs/secret/t.py", '-'),
            ("home/me/project/state.json", '-'),
            ("sdk/deep/er", 'r'),
            ("sdk/deep/er/.aws/credentials", '-'),
            ("sdk/.netrc", '-'),
            ("sdk/id_rsa", '-'),
            ("sdk/id_rsa.pub", 'r'),
            ("sdk/lib/credentials.py", 'r'),
            ("sdk/config.toml", '-'),
            ("sdk/lib/config.toml", 'r'),
            ("sdk/key.pem", '-'),
            ("sdk/cert.pem", 'r'),
            ("sdk/pip.conf", '-'),
            ("secrets/.aws/credentials", 'r'),
        ],
    );
}

#[test]
fn a_named_home_is_readable_without_its_credentials() {
    let tree = Tree::new().files(&[
        "home/me/.ssh/id_rsa",
        "home/me/.config/gh/hosts.yml",
        "home/me/.cargo/credentials",
    ]);
    let tree = Tree {
        read: vec!["home/me", "home/me/.ssh"],
        ..tree
    };
    tree.expect(
        &tree.policy(),
        &[
            ("home/me/private.txt", 'r'),
            ("home/me/.config/gh/hosts.yml", '-'),
            ("home/me/.cargo/credentials", '-'),
            ("home/me/.ssh/id_rsa", 'r'),
            ("home/me/project/state.json", '-'),
        ],
    );
    // A parent of the home does not open it.
    let tree = Tree {
        read: vec!["home"],
        ..tree
    }
    .files(&["home/you/x"]);
    tree.expect(
        &tree.policy(),
        &[("home/you/x", 'r'), ("home/me/private.txt", '-')],
    );
}

#[test]
fn a_named_path_in_or_around_the_workspace_stays_writable() {
    let tree = Tree::new().files(&[
        "home/me/project/workspace/lib/.env",
        "home/me/project/workspace/lib/x",
    ]);
    let tree = Tree {
        read: vec!["home/me/project/workspace/lib", "home/me/project"],
        ..tree
    };
    let expected = [
        ("home/me/project/workspace/lib/x", 'w'),
        ("home/me/project/workspace/lib/.env", 'w'),
    ];
    tree.expect(&tree.policy(), &expected);
}

#[test]
fn the_system_is_readable_without_a_home() {
    let tree = Tree::new();
    for home in [
        None,
        Some(""),
        Some("/"),
        Some("relative"),
        Some("/missing/home"),
        Some("/tmp"),
        Some("/usr"),
    ] {
        let variables = home.map(|home| ("HOME".to_owned(), home.to_owned()));
        let policy = tree.policy_with(variables);
        assert_eq!(
            policy.reach(Path::new("/usr/bin")),
            PathAccess::Read,
            "{home:?}"
        );
        tree.expect(
            &policy,
            &[
                ("home/me/private.txt", '-'),
                ("home/me/project/workspace/x", 'w'),
            ],
        );
    }
}

#[test]
fn variables_open_only_toolchains_of_the_home() {
    let tree = Tree::new().files(&[
        "home/me/jdk/bin/java",
        "srv/rust/x",
        "home/me/gocode/pkg/mod/m",
    ]);
    let variables = [
        ("JAVA_HOME", "home/me/jdk"),
        ("RUSTUP_HOME", "srv/rust"),
        ("GOPATH", "home/me/gocode"),
    ];
    let variables =
        variables.map(|(name, path)| (name.to_owned(), tree.at(path).display().to_string()));
    let tree = Tree {
        variables: variables.to_vec(),
        ..tree
    };
    let expected = [
        ("home/me/jdk/bin/java", 'r'),
        ("srv/rust/x", '-'),
        ("home/me/gocode/pkg/mod/m", 'r'),
    ];
    tree.expect(&tree.policy(), &expected);
}

#[test]
fn an_open_network_shows_its_settings() {
    let tree = Tree::new().files(&["home/me/corporate.crt"]);
    let certificates = (
        "SSL_CERT_FILE".to_owned(),
        tree.at("home/me/corporate.crt").display().to_string(),
    );
    let mut tree = Tree {
        variables: vec![certificates],
        ..tree
    };
    tree.expect(&tree.policy(), &[("home/me/corporate.crt", '-')]);
    tree.network = true;
    let policy = tree.policy();
    tree.expect(&policy, &[("home/me/corporate.crt", 'r')]);
    if let Ok(target) = Path::new("/etc/resolv.conf").canonicalize() {
        assert_eq!(policy.reach(&target), PathAccess::Read);
    }
}

#[test]
fn private_directories_cannot_be_opened() {
    for path in ["/", "/proc", "/proc/1", "/dev", "/dev/null", "/tmp"] {
        assert!(refusal(Path::new(path)).is_some(), "{path}");
    }
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path(), Path::new("/opt"), Path::new("/missing")] {
        assert_eq!(refusal(path), None, "{}", path.display());
    }
}
