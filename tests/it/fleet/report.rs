//! `fleet report`: the page, in Chromium, and its data.

use std::fs;
use std::path::Path;

use serde_json::{Value, json as value};
use tempfile::TempDir;

use super::{name_of, names, project, right, summary};
use crate::report_page::examine;
use crate::support::needs;
use crate::support::project::Project;
use crate::support::reply;
use crate::support::server::Server;

/// A sweep of two models over two specs, twice each. The large model solves `a`; the small one solves it once.
fn sweep() -> Project {
    let mut small = 0;
    let server = Server::answering(move |request| {
        let is_small = request.body["model"] == "small";
        let is_first_spec = request.text().contains("the first answer");
        small += u32::from(is_small && is_first_spec);
        match is_first_spec && (!is_small || small == 1) {
            true => right(),
            false => reply::answer("41").usage(100, 10),
        }
    });
    let project = project(&["a", "b"], &server);
    for (stem, answer) in [("a", "first"), ("b", "<script>window.ran=1</script>")] {
        let path = format!("specs/{stem}.yaml");
        let text = project
            .read(&path)
            .replace("Write the answer", &format!("Write the {answer} answer"));
        let text = text.replace(
            &format!("name: {stem}"),
            &format!("name: \"{stem} <img src=x onerror=window.ran=1>\""),
        );
        project.write(&path, text + "max_retries: 1\n");
    }
    let command = [
        "fleet",
        "run",
        "specs",
        "--repeat",
        "2",
        "--jobs",
        "1",
        "--matrix",
        "model=large,small",
        "--quiet",
    ];
    project.run(&command).exits(1);
    project
}

#[test]
fn a_sweep_has_what_each_model_solved() {
    let project = sweep();
    let ran = project
        .run(&["fleet", "report", "fleet", "--json"])
        .exits(0);
    let report = summary(&ran.stdout);
    assert_eq!(report["counts"]["success"], 3, "{report}");
    let row = |row: &Value| {
        (
            row["value"].clone(),
            row["solved"].clone(),
            row["total"].clone(),
        )
    };
    let rows: Vec<_> = report["solved"]
        .as_array()
        .unwrap()
        .iter()
        .map(row)
        .collect();
    let expected = [
        (Value::Null, value!(3), value!(8)),
        (value!("large"), value!(2), value!(4)),
        (value!("small"), value!(1), value!(4)),
    ];
    assert_eq!(rows, expected);
    // Of the small model, one of two tries solved the first spec, and none the second.
    let pass = &report["solved"][2]["pass_at"];
    assert_eq!(
        *pass,
        value!([{"k": 1, "probability": 0.25}, {"k": 2, "probability": 0.5}])
    );
}

#[test]
fn the_page_works_in_a_browser_with_and_without_its_script() {
    let project = sweep();
    let ran = project.run(&["fleet", "report", "fleet"]).exits(0);
    let path = Path::new(ran.stdout.trim()).to_owned();
    assert_eq!(path, project.path("fleet/report.html"));
    let page = fs::read_to_string(&path).unwrap();
    for name in names(&project) {
        assert!(
            page.contains(&format!("<a href=\"roots/{name}/logs/")),
            "{name}"
        );
    }
    let Some(tools) = needs::report_tools().filter(|_| needs::program("chromium")) else {
        return;
    };
    let folder = TempDir::new().unwrap();
    fs::copy(&path, folder.path().join("fleet.html")).unwrap();
    let pages = examine(tools, folder.path());
    let facts = &pages[0];
    assert_eq!(facts.trouble, [""; 0]);
    assert_eq!(facts.foreign, ["script"]);
    assert_eq!(facts.violations, [""; 0]);
    assert_eq!(facts.sections, ["Result", "Solved", "Entries"]);
    assert!(!facts.ran, "{}", facts.text);
    for width in facts.widths.values() {
        assert!(width.scroll_width <= width.client_width, "{width:?}");
    }
    for link in &facts.links {
        assert!(project.exists(&format!("fleet/{link}")), "{link}");
    }
    assert_eq!(facts.links.len(), 8);
    let [mut down, up] = facts.sorted.clone().unwrap();
    assert!(down.is_sorted(), "{down:?}");
    down.reverse();
    assert_eq!(down, up);
}

#[test]
fn a_report_may_be_elsewhere_and_needs_no_runs() {
    let server = Server::start([]);
    let project = project(&["a"], &server);
    project.run(&["fleet", "plan", "specs"]).exits(0);
    let ran = project
        .run(&["fleet", "report", "fleet", "--out", "page.html"])
        .exits(0);
    assert_eq!(
        ran.stdout.trim(),
        project.path("page.html").display().to_string()
    );
    let page = project.read("page.html");
    assert!(
        page.contains(&name_of(&project, "a")) && page.contains("1 waiting"),
        "{page}"
    );
    project
        .run(&["fleet", "report", "specs"])
        .exits(64)
        .says("there is no fleet in");
}
