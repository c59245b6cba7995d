//! Overhead of the sandbox: the start of `/bin/true` in it against a plain one. Run it with `cargo bench --bench
//! sandbox`; it takes some seconds.
//!
//! Nothing is asserted. Everything is measured in alternation, so that other load affects all alike; each row shows both
//! medians, the median of the ratios, the median and the 10th percentile of the differences, and the difference in
//! CPU time, which is less affected by other load. The rows:
//!
//! - `keeper`: `process::run` without a sandbox, against plain spawning and waiting.
//! - *full*, *reduced*: with the sandbox of a project in this folder, against the supervisor and plain spawning.
//! - *member*: a child in shared namespaces, whose mount tree and network exist already.
//! - *python*: an interpreter that does nothing, in the full sandbox against none.
//! - *trial*: the probe of the system, once per run; the baseline is a plain start.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs};

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, probe, sandbox_policy,
};
use orchestrator::internals::process::{self, CallerEnv, Job, JobEnd, Launcher, find_program};

const ROUNDS: usize = 200;

fn main() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = place.path().canonicalize().unwrap();
    let open = Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")));
    let base = CallerEnv::new(env::vars_os());
    let behind = |mode: SandboxMode| {
        let private = (mode == SandboxMode::Reduced).then_some(place.as_path());
        open.with_policy(sandbox_policy(&PolicyPlan {
            mode,
            workspace: &place,
            root: None,
            base: &base,
            read: &[],
            originals: &[],
            freeze: &[],
            private,
            devices: &[],
            network: false,
            limits: ResourceLimits::default(),
        }))
    };
    let (full, reduced) = (behind(SandboxMode::Full), behind(SandboxMode::Reduced));
    let member = open
        .with_shared_namespaces(full.policy.clone().unwrap())
        .unwrap();
    let mut rows: Vec<(&str, Vec<(Cost, Cost)>)> = [
        "keeper / plain",
        "full / plain",
        "full / keeper",
        "reduced / plain",
        "reduced / keeper",
        "member / keeper",
    ]
    .map(|name| (name, Vec::new()))
    .to_vec();
    rows.extend([
        ("python full / keeper", Vec::new()),
        ("trial / plain", Vec::new()),
    ]);
    let run = |launcher: &Launcher, words: &[&str]| cost(|| start(launcher, &place, words));
    let python = find_program(base.path(), "python3".as_ref(), &place)
        .map(|path| path.display().to_string());
    for _ in 0..ROUNDS {
        let plain = cost(|| {
            let mut command = Command::new("/bin/true");
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap();
        });
        let [keeper, full_start, reduced_start, member_start] =
            [&open, &full, &reduced, &member].map(|launcher| run(launcher, &["/bin/true"]));
        let pairs = [
            (plain, keeper),
            (plain, full_start),
            (keeper, full_start),
            (plain, reduced_start),
            (keeper, reduced_start),
            (keeper, member_start),
        ];
        for (row, pair) in rows.iter_mut().zip(pairs) {
            row.1.push(pair);
        }
        if let Some(python) = &python {
            let words = [python.as_str(), "-I", "-S", "-c", "pass"];
            rows[6].1.push((run(&open, &words), run(&full, &words)));
        }
        rows[7].1.push((
            plain,
            cost(|| drop(probe::find(&open, &env::temp_dir(), false).unwrap())),
        ));
    }
    println!("ms                     baseline measured   ratio    more     p10  processor");
    rows.iter()
        .filter(|row| !row.1.is_empty())
        .for_each(|(name, pairs)| print(name, pairs));
}

fn start(launcher: &Launcher, place: &Path, words: &[&str]) {
    let command = words.iter().map(Into::into).collect();
    let job = Job {
        command,
        cwd: place.to_owned(),
        env: Vec::new(),
        timeout: Duration::from_secs(60),
    };
    let finished = process::run(launcher, &job, None, &CancelToken::never().unwrap()).unwrap();
    assert_eq!(finished.ended, JobEnd::Exited(0));
}

/// Milliseconds.
#[derive(Clone, Copy)]
struct Cost {
    clock: f64,
    /// CPU time of this process and of reaped children.
    processor: f64,
}

fn cost(work: impl FnOnce()) -> Cost {
    let (processor, begun) = (processor(), Instant::now());
    work();
    Cost {
        clock: begun.elapsed().as_secs_f64() * 1000.0,
        processor: self::processor() - processor,
    }
}

fn processor() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat
        .rsplit(") ")
        .next()
        .unwrap()
        .split(' ')
        .skip(11)
        .take(4);
    // The kernel counts them in hundredths of a second.
    fields
        .map(|field| field.parse::<f64>().unwrap() * 10.0)
        .sum()
}

fn print(name: &str, pairs: &[(Cost, Cost)]) {
    let quantile = |share: f64, value: fn(&(Cost, Cost)) -> f64| {
        let mut sorted: Vec<f64> = pairs.iter().map(value).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    };
    let [baseline, measured] = [
        quantile(0.5, |pair| pair.0.clock),
        quantile(0.5, |pair| pair.1.clock),
    ];
    let ratio = quantile(0.5, |pair| pair.1.clock / pair.0.clock);
    let [more, p10] = [0.5, 0.1].map(|share| quantile(share, |pair| pair.1.clock - pair.0.clock));
    let processor: f64 = pairs
        .iter()
        .map(|pair| pair.1.processor - pair.0.processor)
        .sum::<f64>()
        / pairs.len() as f64;
    println!(
        "{name:<22}{baseline:>9.2}{measured:>9.2}{ratio:>8.2}{more:>8.2}{p10:>8.2}{processor:>11.2}"
    );
}
