//! The HTML of `report` in Chromium: runs of every outcome and kind, and hostile texts in every field.
//!
//! `examine.cjs` opens all pages in one browser and says what it found; the tests here judge it.
//! `SCREENSHOTS=FOLDER cargo test --test it report_page::` keeps pictures of all pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::needs;
use crate::support::reported_runs::{large_project, reported, reported_runs};

/// What the browser found of a page.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PageFacts {
    name: String,
    /// Messages of the console, errors, dialogs, and requests to anything but the file.
    pub(crate) trouble: Vec<String>,
    headings: Vec<String>,
    pub(crate) sections: Vec<String>,
    counts: BTreeMap<String, usize>,
    /// Elements, attributes and links that no page has.
    pub(crate) foreign: Vec<String>,
    handlers: Vec<String>,
    pub(crate) links: Vec<String>,
    /// Links within the page that lead nowhere.
    broken: Vec<String>,
    /// Whether something of a hostile text was executed.
    pub(crate) ran: bool,
    pub(crate) text: String,
    invisible: bool,
    pub(crate) widths: BTreeMap<u32, WidthFacts>,
    background: BTreeMap<String, String>,
    printed: PrintFacts,
    /// Of one page of each kind.
    keyboard: Option<KeyboardFacts>,
    pub(crate) violations: Vec<String>,
    without_script: PlainFacts,
    /// The first cells of a table that can be sorted: downwards and upwards.
    pub(crate) sorted: Option<[Vec<String>; 2]>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WidthFacts {
    pub(crate) scroll_width: u32,
    pub(crate) client_width: u32,
    /// Elements that end beyond the page.
    wide: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct PrintFacts {
    background: String,
    patches: usize,
    exchanges: usize,
    nav: usize,
}

#[derive(Debug, Deserialize)]
struct KeyboardFacts {
    stops: usize,
    first: String,
    /// Stops that are outside of the window, or without an outline.
    bad: Vec<Value>,
    /// Folded parts that the keyboard did not open.
    stuck: Vec<String>,
    closed: usize,
    /// Where the skip link leads.
    skipped: String,
}

#[derive(Debug, Deserialize)]
struct PlainFacts {
    text: usize,
    open: usize,
    sections: Vec<String>,
}

/// What the browser says of the pages of all runs; `None` where it cannot be started.
fn examined() -> Option<&'static [PageFacts]> {
    static FOUND: OnceLock<Option<Vec<PageFacts>>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        let tools = needs::report_tools()?;
        let folder = TempDir::new().unwrap();
        for run in reported_runs() {
            let file = folder.path().join(run.name).with_extension("html");
            fs::write(file, &run.html).unwrap();
        }
        Some(examine(tools, folder.path()))
    });
    if !needs::program("chromium") {
        return None;
    }
    found.as_deref()
}

pub(crate) fn examine(tools: &Path, folder: &Path) -> Vec<PageFacts> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/report_page/examine.cjs");
    let output = Command::new("node")
        .arg(script)
        .args([tools, folder])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "the browser: {}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Asserts something of every page; `wrong` returns what is wrong with one.
fn every_page(wrong: impl Fn(&PageFacts) -> Option<String>) {
    let Some(pages) = examined() else { return };
    assert_eq!(pages.len(), reported_runs().len());
    let wrong: Vec<String> = pages
        .iter()
        .filter_map(|page| Some(format!("{}: {}", page.name, wrong(page)?)))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn unless(is_right: bool, wrong: impl FnOnce() -> String) -> Option<String> {
    (!is_right).then(wrong)
}

#[test]
fn a_page_has_no_errors_and_asks_for_nothing() {
    every_page(|page| {
        let all = [&page.trouble, &page.foreign, &page.links, &page.broken];
        unless(all.iter().all(|list| list.is_empty()), || {
            format!("{all:?}")
        })
    });
}

#[test]
fn every_section_is_there_also_without_scripts() {
    let common = ["Result", "How to continue", "Timeline"];
    let last = ["Sandbox, limits and notes", "Model exchanges"];
    every_page(|page| {
        let middle: &[&str] = match page.name.contains("workflow") || page.name == "hostile_payload"
        {
            true => &["Agents", "Transitions"],
            false => &["Attempts"],
        };
        let mut expected = [&common[..], middle, &last[..]].concat();
        if page.sections.iter().any(|name| name == "Charts") {
            expected.insert(2, "Charts");
        }
        let plain = &page.without_script;
        let is_right = page.sections == expected && plain.sections == expected;
        let is_readable = 500 < plain.text && 0 < plain.open;
        unless(is_right && is_readable, || {
            format!("{:?}, without scripts {plain:?}", page.sections)
        })
    });
}

#[test]
fn the_keyboard_reaches_and_opens_everything() {
    every_page(|page| {
        let keyboard = page.keyboard.as_ref()?;
        let is_right = keyboard.first == "Skip to the content"
            && keyboard.skipped == "content"
            && keyboard.bad.is_empty()
            && keyboard.stuck.is_empty()
            && keyboard.closed == 0
            && page.counts["details"] < keyboard.stops;
        unless(is_right, || format!("{keyboard:?}"))
    });
    let Some(pages) = examined() else { return };
    let walked = pages.iter().filter(|page| page.keyboard.is_some());
    assert_eq!(walked.count(), 5);
}

#[test]
fn no_page_is_wider_than_its_window() {
    every_page(|page| {
        let mut widths = page.widths.values();
        let is_right =
            widths.all(|width| width.scroll_width <= width.client_width && width.wide.is_empty());
        unless(is_right && page.widths.len() == 2, || {
            format!("{:?}", page.widths)
        })
    });
}

#[test]
fn a_page_is_light_or_dark_as_the_reader_wants_and_light_on_paper() {
    every_page(|page| {
        let is_right = page.background["light"] == "rgb(255, 255, 255)"
            && page.background["dark"] == "rgb(13, 17, 23)"
            && page.printed.background == "rgb(255, 255, 255)"
            && (page.printed.exchanges, page.printed.nav) == (0, 0);
        unless(is_right, || {
            format!("{:?} {:?}", page.background, page.printed)
        })
    });
    let Some(pages) = examined() else { return };
    let failed = pages.iter().find(|page| page.name == "failed").unwrap();
    assert!(0 < failed.printed.patches, "the patches are not printed");
}

#[test]
fn a_page_is_accessible_in_both_schemes() {
    every_page(|page| {
        unless(page.violations.is_empty(), || {
            format!("{:#?}", page.violations)
        })
    });
    every_page(|page| {
        let landmarks = ["main", "nav", "header", "footer"];
        let is_right = landmarks.iter().all(|name| page.counts[*name] == 1)
            && page.counts["table"] == page.counts["caption"];
        unless(is_right, || format!("{:?}", page.counts))
    });
}

#[test]
fn hostile_texts_stay_texts() {
    every_page(|page| {
        let is_right = !page.ran && !page.invisible && page.handlers.is_empty();
        unless(is_right, || format!("{page:?}"))
    });
    let Some(pages) = examined() else { return };
    let hostile: Vec<&PageFacts> = pages
        .iter()
        .filter(|page| page.name.starts_with("hostile"))
        .collect();
    assert_eq!(hostile.len(), 6);
    for page in hostile {
        let shown = page.text.matches("<script>window.ran=1<").count();
        assert!(2 < shown, "{}: {shown} in {}", page.name, page.text);
    }
}

#[test]
fn a_build_shows_its_attempts_its_charts_and_its_changes() {
    let Some(pages) = examined() else { return };
    let page = pages.iter().find(|page| page.name == "failed").unwrap();
    for heading in [
        "Before the first request",
        "Attempt 1",
        "Attempt 3",
        "What changed",
        "Tests",
        "What the model was told",
    ] {
        assert!(page.headings.iter().any(|one| one == heading), "{heading}");
    }
    for text in [
        "FAILED (retries_exhausted)",
        "orchestrator run --spec specs/spec.yaml --continue",
        "Tests per attempt",
        "Cost over time",
        "PATCHING",
        "-    return a",
        "+    return a - 0",
        "AssertionError: 1 != -1 at tests/test_calc.py:9",
        "Skipped tests of unit",
        "An answer was refused: ",
        "of 2.0000 USD",
        "2 of 2 at most",
        "Attempt 2, PATCHING, turn 1: only words (refused)",
        "tried again",
    ] {
        assert!(page.text.contains(text), "{text:?} is not in {}", page.text);
    }
    assert!(2 <= page.counts["svg[role=img]"]);
    assert!(0 < page.counts["ins"] && 0 < page.counts["del"]);
}

#[test]
fn each_outcome_says_why_and_how_to_go_on() {
    let Some(pages) = examined() else { return };
    for (name, texts) in [
        ("success", ["held (hidden)", "orchestrator diff"]),
        (
            "paused",
            [
                "PAUSED (provider_unauthorized)",
                "orchestrator run --spec specs/spec.yaml",
            ],
        ),
        ("resumed", ["SUCCESS (tests_passed)", "in 2 starts"]),
        (
            "interrupted",
            [
                "INTERRUPTED (interrupted)",
                "orchestrator run --spec specs/spec.yaml",
            ],
        ),
        (
            "running",
            [
                "The log ends within PATCHING of attempt 2",
                "orchestrator watch",
            ],
        ),
        (
            "killed",
            [
                "The log ends within PATCHING of attempt 2",
                "orchestrator run --spec specs/spec.yaml",
            ],
        ),
        (
            "log_alone",
            ["Its state is not here", "The contents are not kept"],
        ),
        ("agent", ["bash: cat tests/*.py (done", "ZeroDivisionError"]),
        ("workflow", ["SUCCESS (completed)", "main_worker1"]),
        (
            "workflow_failed",
            ["FAILED (agent_failed)", "there is no transition tag"],
        ),
    ] {
        let page = pages.iter().find(|page| page.name == name).unwrap();
        for text in texts {
            assert!(
                page.text.contains(text),
                "{name}: {text:?} is not in {}",
                page.text
            );
        }
    }
}

#[test]
fn a_workflow_shows_its_agents_as_lanes_with_forks_and_joins() {
    let page = &reported("workflow").html;
    let agents = reported("workflow").json["agents"]
        .as_array()
        .map_or(0, Vec::len);
    assert!(3 < agents);
    assert_eq!(page.matches("<rect class=\"ground\"").count(), agents);
    assert_eq!(page.matches("<line class=\"fork\"").count(), 3);
    assert_eq!(page.matches("<line class=\"join\"").count(), 3);
    assert!(page.contains("MERGE.md, which waits for main_worker1, main_worker2, main_script3"));
}

#[test]
fn fifty_attempts_with_ten_megabytes_of_log_make_a_small_page() {
    let project = large_project();
    let printed = |format: &str| {
        let arguments = ["report", "--format", format, "-o", "-"];
        project.run(&arguments).exits(0).stdout
    };
    let page = printed("html");
    assert!(page.len() < 5_000_000, "{}", page.len());
    for number in 1..=50 {
        assert!(page.contains(&format!("<h3 id=\"attempt-{number}\">")));
    }
    // Each attempt has a part of its changes.
    let patches = page.matches("<pre class=\"patch\">").count();
    assert!(
        50 <= patches && 1000 < page.matches("<ins>").count(),
        "{patches}"
    );
    assert!(printed("md").len() < 65_536);
}
