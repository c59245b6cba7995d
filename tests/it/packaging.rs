//! `packaging/dist`: the tarball and the Debian package, unpacked and used.

use std::path::Path;

use crate::support::needs;
use crate::support::project::{BINARY, Project};

#[test]
fn the_packages_have_a_program_that_works_with_its_pages_and_licences() {
    let needed = ["dpkg-deb", "strip", "objdump", "readelf", "python3"];
    if !needed.iter().all(|name| needs::program(name)) {
        return;
    }
    let project = Project::new().env("DIST_FAST", "1");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("packaging/dist");
    let home = std::env::var("HOME").unwrap();
    let line = format!("HOME={home} {} {BINARY} $PWD/out", script.display());
    project.run_in_shell(&line, &[]).exits(0);
    let line = "mkdir tar && tar -C tar --strip-components 1 -xzf out/*.tar.gz && dpkg-deb -x out/*.deb deb && ls out";
    let ran = project.run_in_shell(line, &[]).exits(0);
    assert_eq!(ran.stdout.lines().count(), 2, "{}", ran.transcript());
    for (tree, end) in [("tar", ""), ("deb/usr", ".gz")] {
        let ran = project.run_in_shell(&format!("{tree}/bin/orchestrator --version"), &[]);
        let version = ran.exits(0).stdout;
        assert_eq!(version, project.run(&["--version"]).stdout);
        for file in [
            "bash-completion/completions/orchestrator".to_owned(),
            "zsh/vendor-completions/_orchestrator".into(),
            "fish/vendor_completions.d/orchestrator.fish".into(),
            format!("man/man1/orchestrator.1{end}"),
            format!("man/man1/orchestrator-run.1{end}"),
            "doc/orchestrator/README.md".into(),
        ] {
            assert!(project.exists(&format!("{tree}/share/{file}")), "{file}");
        }
        let sections = project.run_in_shell(&format!("readelf -SW {tree}/bin/orchestrator"), &[]);
        let sections = sections.exits(0).stdout;
        assert!(
            sections.contains(" .text ") && !sections.contains(" .symtab "),
            "{sections}"
        );
        let prepare = format!(
            "rm -rf empty run && mkdir empty && cp -R {tree}/share/doc/orchestrator/examples run"
        );
        project.run_in_shell(&prepare, &[]).exits(0);
        let run = |arguments: &str| {
            let line = format!(
                "export HOME=$PWD/empty && cd run && ../{tree}/bin/orchestrator {arguments}"
            );
            project.run_in_shell(&line, &[]).exits(0)
        };
        run("run --spec specs/roman.yaml")
            .says("check unit: passed, 3 tests")
            .says_on_stdout("SUCCESS (tests_passed): all checks passed after 1 patch");
        run("reset");
        run("run --workflow workflows/fix --replay workflows/fix.log");
        let licences = project.read(&format!("{tree}/share/doc/orchestrator/THIRD-PARTY"));
        assert!(licences.contains("\nclap 4.") && licences.contains("\nrustls 0."));
    }
    assert!(project.exists("tar/share/doc/orchestrator/LICENSE-MIT"));
    assert!(
        project
            .read("deb/usr/share/doc/orchestrator/copyright")
            .contains("/usr/share/common-licenses/Apache-2.0")
    );
}
