//! The environment of a check: toolchain and network variables, compiler caches, the home directory.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::json;

use crate::support::project::{Project, RUN, checked_by};
use crate::support::reply;
use crate::support::server::Server;

const OFFLINE: [(&str, &str); 5] = [
    ("CARGO_NET_OFFLINE", "true"),
    ("GOPROXY", "off"),
    ("UV_OFFLINE", "1"),
    ("PIP_NO_INDEX", "1"),
    ("npm_config_offline", "true"),
];

/// The environment of a check.
fn variables(project: Project, more: &str, arguments: &[&str]) -> BTreeMap<String, String> {
    let server = Server::start([reply::answer("42")]);
    let project = project.spec(checked_by("env > seen") + more).model(&server);
    project.run(&[RUN, arguments].concat()).exits(0);
    let lines = project.workspace("seen");
    lines
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.into(), value.into()))
        .collect()
}

fn seen<'a>(all: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    all.get(name).map(String::as_str)
}

#[test]
fn toolchains_in_the_home_are_found() {
    let project = Project::new();
    for folder in [
        ".cargo/bin",
        ".rustup",
        ".pyenv",
        "go/pkg/mod",
        ".local/lib",
        ".gradle/caches",
    ] {
        fs::create_dir_all(project.outside("home").join(folder)).unwrap();
    }
    let home = project.outside("home").display().to_string();
    let all = variables(project, "", &[]);
    for (name, place) in [
        ("CARGO_HOME", ".cargo"),
        ("RUSTUP_HOME", ".rustup"),
        ("PYENV_ROOT", ".pyenv"),
        ("GOMODCACHE", "go/pkg/mod"),
        ("PYTHONUSERBASE", ".local"),
        ("GRADLE_RO_DEP_CACHE", ".gradle/caches"),
    ] {
        assert_eq!(
            seen(&all, name),
            Some(format!("{home}/{place}").as_str()),
            "{name}"
        );
    }
    assert_eq!(seen(&all, "PYTHONNOUSERSITE"), None);
    assert_ne!(seen(&all, "HOME"), Some(home.as_str()));
}

#[test]
fn variables_of_a_hidden_toolchain_are_dropped() {
    let project = Project::new();
    let elsewhere = project.outside("elsewhere/rust/bin");
    fs::create_dir_all(&elsewhere).unwrap();
    let path = format!("{}:/usr/bin:/bin", elsewhere.display());
    let rust = project.outside("elsewhere/rust").display().to_string();
    let all = variables(
        project.env("RUSTUP_HOME", &rust).env("PATH", &path),
        "",
        &[],
    );
    assert_eq!(
        (seen(&all, "RUSTUP_HOME"), seen(&all, "PATH")),
        (None, Some("/usr/bin:/bin"))
    );
    assert_eq!(seen(&all, "PYTHONNOUSERSITE"), Some("1"));
}

#[test]
fn toolchains_are_set_offline_without_a_network() {
    let proxies = [
        ("HTTP_PROXY", "http://192.0.2.1:1"),
        ("NO_PROXY", "127.0.0.1"),
        ("SSL_CERT_FILE", "/etc/hosts"),
    ];
    let project = || {
        proxies
            .iter()
            .fold(Project::new(), |project, (name, value)| {
                project.env(name, value)
            })
    };
    let (without, with) = (
        variables(project(), "", &[]),
        variables(project(), "sandbox: {network: true}\n", &[]),
    );
    for (name, value) in OFFLINE {
        assert_eq!(
            (seen(&without, name), seen(&with, name)),
            (Some(value), None),
            "{name}"
        );
    }
    for (name, value) in proxies {
        assert_eq!(
            (seen(&without, name), seen(&with, name)),
            (None, Some(value)),
            "{name}"
        );
    }
}

#[test]
fn without_a_sandbox_home_is_the_users_home() {
    let project = Project::new();
    let home = project.outside("home").display().to_string();
    let all = variables(project, "", &["--no-sandbox"]);
    assert_eq!(
        (seen(&all, "HOME"), seen(&all, "PYTHONHASHSEED")),
        (Some(home.as_str()), Some("0"))
    );
    assert_ne!(seen(&all, "TMPDIR"), Some("/tmp"));
}

/// A spec whose visible check keeps a counter in the cache, and whose hidden check looks for it.
fn counting() -> String {
    let visible = "mkdir -p $GOCACHE && echo x >> $GOCACHE/rounds && cp $GOCACHE/rounds rounds; \
        echo \"$GOCACHE\" > place; grep -qx 42 answer.txt";
    let hidden = "test ! -e $GOCACHE/rounds && test ! -e $(cat place)/rounds -o \"$(cat place)\" != \"$GOCACHE\"";
    format!(
        "name: answer\ndescription: x\nchecks:\n- {{name: one, command: {}}}\n- {{name: two, hidden: true, command: {}}}\n",
        json!(["sh", "-c", visible]),
        json!(["sh", "-c", hidden])
    )
}

#[test]
fn compiler_caches_last_as_long_as_the_run() {
    let server = Server::start([
        reply::answer("41"),
        reply::answer("42"),
        reply::answer("42"),
    ]);
    let project = Project::with(counting(), &server);
    project.run(RUN).exits(0);
    assert_eq!(project.workspace("rounds"), "x\nx\n");
    let place = project.workspace("place");
    assert!(place.contains("home/.cache/orchestrator/"), "{place}");
    assert_eq!(fs::read_dir(project.outside("home")).unwrap().count(), 0);
    // The next run starts with an empty cache at the same path.
    project.run(&[RUN, &["--no-resume"]].concat()).exits(0);
    assert_eq!(
        (
            project.workspace("rounds").as_str(),
            project.workspace("place")
        ),
        ("x\n", place)
    );
}

#[test]
fn caches_of_a_killed_run_are_removed() {
    let server = Server::start([
        reply::answer("41"),
        reply::answer("42").held(),
        reply::answer("42"),
    ]);
    let project = Project::with(counting(), &server);
    let running = project.start(RUN);
    server.wait_for(2);
    running.signal(Signal::KILL);
    running.wait();
    let caches = project.outside("home/.cache/orchestrator");
    assert_eq!(
        fs::read_dir(&caches)
            .unwrap()
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .count(),
        1
    );
    project.run(&["reset"]).exits(0);
    assert_eq!(fs::read_dir(project.outside("home")).unwrap().count(), 0);
}

#[test]
fn a_cache_folder_of_the_user_is_left_alone() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(counting(), &server);
    let folder = project.outside("caches");
    fs::create_dir_all(folder.join("other")).unwrap();
    let project = project.env("XDG_CACHE_HOME", &folder.display().to_string());
    project.run(RUN).exits(0);
    assert!(
        project
            .workspace("place")
            .starts_with(&folder.display().to_string())
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
}

#[test]
fn paths_opened_by_the_spec_are_printed() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().file("sdk/lib.txt", "").model(&server);
    fs::create_dir(project.outside("home/tools")).unwrap();
    let project =
        project.spec(checked_by("true") + "sandbox: {read: [../sdk, ~/tools], network: true}\n");
    project
        .run(RUN)
        .exits(0)
        .says("/sdk")
        .says("home/tools")
        .says("loopback");
}

#[test]
fn an_opened_link_is_printed_with_its_target() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().file("sdk/lib.txt", "").model(&server);
    std::os::unix::fs::symlink("../sdk", project.path("specs/link")).unwrap();
    let project =
        project.spec(checked_by("cat ../specs/link/lib.txt") + "sandbox: {read: [link]}\n");
    let root = project.root().canonicalize().unwrap().display().to_string();
    project
        .run(RUN)
        .exits(0)
        .says("/specs/link -> ")
        .says(&format!("{root}/sdk"));
}

#[test]
fn credentials_stay_hidden_at_any_depth_and_cannot_be_written() {
    let server = Server::start([reply::answer("42")]);
    let script = "cat ../sdk/lib.txt; for f in ../sdk/.env ../sdk/1/2/3/4/5/6/7/.netrc; do \
                  test ! -s $f && ! (chmod 600 $f && echo evil > $f) 2> /dev/null || exit 1; done";
    let project = Project::new()
        .file("sdk/lib.txt", "")
        .file("sdk/.env", "secret")
        .file("sdk/1/2/3/4/5/6/7/.netrc", "secret")
        .spec(checked_by(script) + "sandbox: {read: [../sdk]}\n")
        .model(&server);
    project.run(RUN).exits(0);
}

#[test]
fn a_link_on_path_opens_a_program_but_no_credential() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::new().model(&server);
    let home = project.outside("home");
    for folder in ["bin", ".ssh", "kit/bin"] {
        fs::create_dir_all(home.join(folder)).unwrap();
    }
    fs::write(home.join(".ssh/id_rsa"), "secret").unwrap();
    fs::write(home.join("kit/bin/tool"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(home.join("kit/bin/tool"), fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("../kit/bin/tool", home.join("bin/tool")).unwrap();
    std::os::unix::fs::symlink("../.ssh/id_rsa", home.join("bin/key")).unwrap();
    let path = format!("{}:/usr/bin:/bin", home.join("bin").display());
    let script = format!(
        "tool && ! cat {0}/bin/key && ! cat {0}/.ssh/id_rsa",
        home.display()
    );
    project
        .env("PATH", &path)
        .spec(checked_by(&script))
        .run(RUN)
        .exits(0);
}

#[test]
fn a_device_that_is_visible_anyway_can_be_listed() {
    let server = Server::start([reply::answer("42")]);
    let devices = "sandbox: {devices: [/dev/shm, /dev/pts, /dev/ptmx, /dev/fd, /dev/null]}\n";
    let project = Project::new()
        .spec(checked_by("echo x > /dev/null && ls /dev/fd/") + devices)
        .model(&server);
    project.run(RUN).exits(0);
}

#[test]
fn a_path_that_cannot_be_opened_is_refused_with_its_position() {
    for (path, word) in [
        ("missing", "cannot read"),
        ("/", "everything"),
        ("/proc", "private"),
        ("/tmp", "private"),
    ] {
        let project =
            Project::new().spec(checked_by("true") + &format!("sandbox: {{read: [{path}]}}\n"));
        project
            .run(RUN)
            .exits(65)
            .says("spec.yaml:6:18: ")
            .says(word);
    }
}
