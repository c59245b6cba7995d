//! Places of the user inside what may be written, and a way into the walls from outside.

use std::fs;

use crate::agent::Serving;
use crate::project::Project;

/// What steers git was there before and stays, also when the folder around it is moved away.
#[test]
fn what_steers_git_stays_in_its_place() {
    let project = Project::new().file(".git/config", "theirs\n").file(".git/hooks/pre-commit", "theirs\n");
    let mut serving = Serving::start(&project);
    if serving.bash("cat /proc/1/comm").output().trim() != "orchestrator" {
        eprintln!("skipped: in reduced mode nothing in the workspace is read-only");
        return;
    }
    for attack in [
        "echo evil > .git/config",
        "echo evil > .git/hooks/pre-commit",
        "echo evil > .git/hooks/post-commit",
        "chmod 777 .git/hooks/pre-commit",
        "mv .git/hooks .git/gone",
        "mv .git gone && mkdir -p .git/hooks && echo evil > .git/config",
        "rm -rf .git; test ! -e .git/config",
        "ln -sfn /tmp .git/hooks",
        "cd .. && mv root root-2",
    ] {
        assert!(!serving.bash(attack).is_success(), "{attack} worked");
    }
    serving.bash("echo x > .git/HEAD && mv .git/HEAD .git/HEAD2 && echo x > file").shows();
    serving.end();
    assert_eq!(project.read(".git/config") + &project.read(".git/hooks/pre-commit"), "theirs\ntheirs\n");
    assert_eq!(fs::read_dir(project.path(".git/hooks")).unwrap().count(), 1);
}
