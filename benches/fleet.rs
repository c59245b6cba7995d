//! Cost of a fleet per spec, against `xargs -P` that runs each spec in a root of its own. Run it with
//! `cargo bench --bench fleet`; `FLEET_SPECS=1,100` chooses the sizes.
//!
//! Nothing is asserted. Every spec has the template provider and a check that ends at once, so a row is our own cost. Both sides
//! run two at a time, alternate, and begin in empty directories. The aim is a ratio of 1.1, and no growth per spec.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs;
use std::process::{Command, Stdio};

use tempfile::TempDir;

mod support;

use support::{Pairs, cost};

const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const JOBS: &str = "2";

fn main() {
    let sizes = std::env::var("FLEET_SPECS").unwrap_or("1,100,1000".into());
    println!(
        "{:<28}{:>9}{:>9}{:>8}{:>8}{:>8}  aim",
        "ms per spec", "xargs", "fleet", "ratio", "more", "p10"
    );
    for size in sizes.split(',') {
        let count: usize = size.parse().unwrap();
        let rounds = (600 / count).clamp(3, 15);
        let mut pairs = Pairs::default();
        for round in 0..rounds {
            let place = Place::new(count);
            let mut times = [0.0; 2];
            for side in [round % 2, (round + 1) % 2] {
                let [elapsed, _] = cost(|| match side {
                    0 => place.run_by_xargs(count),
                    _ => place.run_as_fleet(),
                });
                times[side] = elapsed / count as f64;
            }
            pairs.add(times[0], times[1]);
        }
        pairs.print(28, &format!("{count} specs"), "1.1");
    }
}

/// A directory with specs.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new(count: usize) -> Place {
        let folder = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).unwrap();
        let specs = folder.path().join("specs");
        fs::create_dir_all(specs.join("template/0")).unwrap();
        fs::write(specs.join("template/0/answer.txt"), "42\n").unwrap();
        for number in 0..count {
            let spec = format!(
                "name: s{number}\ndescription: Write the answer.\nchecks: [{{command: [/bin/true]}}]\n\
                 generator: {{provider: template, template: template}}\n"
            );
            fs::write(specs.join(format!("{number}.yaml")), spec).unwrap();
            fs::create_dir_all(folder.path().join(format!("xargs/{number}"))).unwrap();
        }
        Place { folder }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn run_by_xargs(&self, count: usize) {
        let list: String = (0..count).map(|number| format!("{number}\n")).collect();
        let path = self.folder.path().join("list");
        fs::write(&path, list).unwrap();
        let mut command = self.command("xargs");
        let run = [
            "-P",
            JOBS,
            "-I",
            "{}",
            BINARY,
            "run",
            "--quiet",
            "--spec",
            "specs/{}.yaml",
            "--root",
            "xargs/{}",
        ];
        command.args(run).stdin(fs::File::open(path).unwrap());
        assert!(command.status().unwrap().success());
    }

    fn run_as_fleet(&self) {
        let mut command = self.command(BINARY);
        command.args(["fleet", "run", "specs", "--quiet", "--jobs", JOBS]);
        command.stdin(Stdio::null());
        assert!(command.status().unwrap().success());
    }
}
