//! Interrupts that arrive at any moment of a command, through `serve`.

use std::fs;

use crate::support::project::Project;
use crate::support::running::until;
use crate::support::serve_client::{Request, Serving, command, control};

/// Sleeps five times in one call, during which the interpreter does not look for signals: each signal ends one sleep. So a
/// signal that arrives before a sleep does not end it, which otherwise is a matter of chance.
const SLEEPS: &str = "import ctypes, os
libc = ctypes.CDLL(None)
length, rests = (ctypes.c_long * 2)(1000, 0), (ctypes.c_long * 64)()
print(os.getpid())
libc.bsearch(length, rests, 31, 16, libc.nanosleep)";

#[test]
fn an_interrupt_just_before_python_sleeps_ends_the_sleep() {
    let project = Project::new();
    let mut serving = Serving::with(&project, &["--no-sandbox"]);
    let begun = serving.request(&command("python", SLEEPS).timeout(0.0));
    let mut pid = begun.goes_on().trim().to_owned();
    until("it prints its pid", || {
        if pid.is_empty() {
            let wait = control("python", "wait").timeout(0.01);
            pid = serving.request(&wait).goes_on().trim().to_owned();
        }
        !pid.is_empty()
    });
    until("it sleeps", || {
        fs::read_to_string(format!("/proc/{pid}/status"))
            .unwrap()
            .contains("State:\tS")
    });
    let answer = serving.request(&control("python", "interrupt").timeout(50.0));
    assert!(
        answer.fails().contains("KeyboardInterrupt"),
        "{}",
        answer.output()
    );
    serving.end().exits(0);
}
