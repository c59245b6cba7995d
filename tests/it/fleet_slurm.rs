//! `fleet` on a real Slurm.

use serde_json::Value;

use crate::support::project::Project;
use crate::support::running::Ran;
use crate::support::slurm::Slurm;

/// Specs that need no model; each is checked by a line for `sh`.
fn templates(project: &Project, count: usize, check: &str) {
    project.write("template/0/made.txt", "made\n");
    for number in 0..count {
        let spec = serde_json::json!({
            "name": format!("t{number:03}"),
            "description": "Make it.",
            "generator": {"provider": "template", "template": "../template/"},
            "checks": [{"name": "made", "command": ["sh", "-c", check]}],
        });
        project.write(&format!("specs/t{number:03}.yaml"), spec.to_string());
    }
}

fn object(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout)
        .unwrap_or_else(|error| panic!("{error}\n{}", ran.transcript()))
}

#[test]
fn specs_run_as_an_array() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 3, "grep -q made made.txt");
    let ran = project.run(&["fleet", "run", "specs", "--engine", "slurm", "--json"]);
    let ran = ran.exits(0);
    let result = object(&ran);
    assert_eq!(result["outcome"], "SUCCESS", "{}", ran.transcript());
    assert_eq!(result["counts"]["success"], 3, "{}", ran.transcript());
    assert_eq!(project.read("fleet/slurm.log"), "");
}
