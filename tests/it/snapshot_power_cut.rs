//! Power cuts while a workspace is kept: every snapshot that a log names is whole, and nothing is emptied before it is
//! stored.
//!
//! `power_cut.rs` has the disk: what was not synced is lost with it.

use std::fs;

use crate::power_cut::{disk_for, on_disk};
use crate::snapshot_crash::CHANGES;
use crate::support::fault_tracer::{Disturbance, tracer};
use crate::support::kept_run::{FileContents, KeptRuns, model, project, spec};
use crate::support::project::{Project, RUN, files_below};
use crate::workflow_crash::step;

/// A run to its end, a change by hand, and a reset with the power cut in it. The files before the reset are in `before`.
const CUT_RESET: &str = r#"
mount -o loop,commit=9999 ../disk "$PWD"
cd "$PWD"
cp -r ../specs .
"$@"
echo 'changed by hand' > workspace/lib/code.txt
sync -f .
cp -r workspace ../before
$TRACER "$1" reset || true
cp ../disk ../cut
cp -r . ../seen
"#;

/// What a power cut left, and what the next command made of it.
struct CutRun {
    project: Project,
    left: KeptRuns,
    resumed: KeptRuns,
}

impl CutRun {
    /// Cuts the power at a call in `script`, and runs the command on the disk that is left. `None` if the program makes
    /// fewer calls, or where the disk cannot be made.
    fn at(number: u32, script: &str, arguments: &[&str], tracer: &str) -> Option<CutRun> {
        let server = model();
        let project = project(&spec(3), &server);
        let report = project.outside("disturbed");
        let kill = Disturbance::kill(CHANGES, number);
        let words = kill.words(tracer, &report.display().to_string());
        let project = disk_for(project.env("TRACER", &words.join(" ")))?;
        fs::write(project.outside("cut_reset.sh"), CUT_RESET).unwrap();
        on_disk(&project, script, RUN).exits(0);
        let report = fs::read_to_string(report).unwrap();
        let (_, hit) = report.trim().split_once(' ')?;
        eprintln!("power cut before call {number} ({hit})");
        let ran = on_disk(&project, "go_on.sh", arguments);
        // What a check left is not synced. After a SUCCESS its loss is reported; the last attempt still has it.
        let is_reported = ran.stderr.contains("workspace changed since: out/");
        let end = match ran.code == Some(1) && is_reported {
            true => "left",
            false => {
                ran.exits(0);
                "resumed"
            }
        };
        Some(CutRun {
            left: KeptRuns::read(&project.outside("left")),
            resumed: KeptRuns::read(&project.outside(end)),
            project,
        })
    }

    fn has(kept: &KeptRuns, files: &FileContents) -> bool {
        let mut attempts = kept.attempts.values().flat_map(|run| run.values());
        attempts.any(|attempt| attempt == files)
    }
}

/// Cuts the power at one call after the other; returns how often.
fn cut_everywhere(
    script: &str,
    arguments: &[&str],
    usual_step: u32,
    check: impl Fn(&CutRun),
) -> u32 {
    let Some(tracer) = tracer() else {
        return u32::MAX;
    };
    let numbers = (1..).step_by(step(usual_step) as usize);
    let cuts = numbers.map_while(|number| CutRun::at(number, script, arguments, tracer));
    cuts.map(|cut| check(&cut)).count() as u32
}

#[test]
fn after_a_power_cut_in_a_run_every_recorded_snapshot_is_whole() {
    let cuts = cut_everywhere("cut.sh", RUN, 47, |cut| {
        let runs = cut.resumed.attempts.values();
        let answers: Vec<String> = runs
            .flat_map(|run| run.values())
            .map(|files| String::from_utf8_lossy(&files["answer.txt"]).into_owned())
            .collect();
        for answer in ["40\n", "41\n", "42\n"] {
            assert!(answers.iter().any(|kept| kept == answer), "{answers:?}");
        }
        // What was kept before the cut is still there.
        for (run_id, attempts) in &cut.left.attempts {
            for files in attempts.values() {
                assert!(
                    cut.resumed.find(run_id, files).is_some(),
                    "a snapshot is lost"
                );
            }
        }
    });
    assert!(5 < cuts, "only {cuts} cuts");
}

#[test]
fn after_a_power_cut_in_a_reset_nothing_is_lost() {
    let cuts = cut_everywhere("cut_reset.sh", &["reset"], 9, |cut| {
        let before = files_below(&cut.project.outside("before"));
        let there = files_below(&cut.project.outside("left/workspace"));
        assert!(there == before || CutRun::has(&cut.left, &before), "lost");
        assert!(CutRun::has(&cut.resumed, &before), "lost");
        assert!(files_below(&cut.project.outside("resumed/workspace")).is_empty());
    });
    assert!(5 < cuts, "only {cuts} cuts");
}
