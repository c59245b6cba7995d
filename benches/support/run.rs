//! A run of the orchestrator: its memory and its log.

use std::fs;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread;
use std::time::Duration;

use chrono::{DateTime, FixedOffset};
use serde_json::Value;

/// Runs a command to its end; returns its own peak memory in MB, read every millisecond, and its status.
pub(crate) fn peak(command: &mut Command) -> (f64, ExitStatus) {
    let mut child = command.spawn().unwrap();
    let file = format!("/proc/{}/status", child.id());
    let mut peak = 0.0;
    loop {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kilobytes = line.map(|line| line.trim().trim_end_matches(" kB").parse::<f64>());
        peak = kilobytes.map_or(peak, |kilobytes| kilobytes.unwrap() / 1024.0);
        if let Some(status) = child.try_wait().unwrap() {
            return (peak, status);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn state(root: &Path) -> Value {
    serde_json::from_slice(&fs::read(root.join("state.json")).unwrap()).unwrap()
}

/// When each of the chosen lines of a run's log was written.
pub(crate) fn times(root: &Path, is_chosen: fn(&Value) -> bool) -> Vec<DateTime<FixedOffset>> {
    let log = format!("logs/{}.log", state(root)["run_id"].as_str().unwrap());
    let text = fs::read_to_string(root.join(log)).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(is_chosen)
        .map(|line| DateTime::parse_from_rfc3339(line["ts"].as_str().unwrap()).unwrap())
        .collect()
}
