//! Runs one parser with its corpus and with mutations of it for the given time.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};

use crate::memory::most_held;
use crate::mutate::{Dice, mutated};

const SECONDS: f64 = 1.0;
/// An input that takes longer is taken for an endless loop.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory that a parser may use, in total and for each byte of its input.
const HELD: usize = 64 << 20;
const HELD_FOR_A_BYTE: usize = 100;

/// A parser under test.
struct Fuzzer<'a> {
    name: &'a str,
    seed: u64,
    corpus: PathBuf,
    /// The current input, kept in a file since a parser may end the whole process.
    last: File,
    number: Arc<AtomicU64>,
    slowest: Duration,
    largest: usize,
}

/// Fuzzes a parser; see `main.rs` for its inputs and the duration.
pub(crate) fn fuzz(name: &str, words: &[&str], mut read: impl FnMut(&[u8])) {
    let number = |variable: &str| {
        std::env::var(variable)
            .ok()
            .map(|text| text.parse::<f64>().expect(variable))
    };
    let seconds = number("FUZZ_SECONDS").unwrap_or(SECONDS);
    let mut fuzzer = Fuzzer::new(name, number("FUZZ_SEED").unwrap_or(0.0) as u64);
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let watched = fuzzer.watch();
    let examples = examples(name);
    examples
        .iter()
        .for_each(|example| fuzzer.give(example, &mut read));
    while Instant::now() < end {
        let input = mutated(&mut fuzzer.dice(), &examples, words);
        fuzzer.give(&input, &mut read);
    }
    watched.store(false, Ordering::Relaxed);
    let Fuzzer {
        number,
        slowest,
        largest,
        seed,
        ..
    } = fuzzer;
    let count = number.load(Ordering::Relaxed);
    println!(
        "{name}: {count} inputs, seed {seed}; the slowest took {slowest:?}, the largest held {largest} bytes"
    );
}

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/corpus")
        .join(name)
}

/// The corpus of a parser.
pub(crate) fn examples(name: &str) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> = fs::read_dir(corpus(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    // The same order gives the same inputs for a seed.
    paths.sort();
    assert!(!paths.is_empty(), "there is no corpus of {name}");
    paths.iter().map(|path| fs::read(path).unwrap()).collect()
}

impl Fuzzer<'_> {
    fn new(name: &str, seed: u64) -> Fuzzer<'_> {
        let last =
            File::create(Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}")))
                .unwrap();
        println!("{name}: seed {seed}");
        Fuzzer {
            name,
            seed,
            corpus: corpus(name),
            last,
            number: Arc::default(),
            slowest: Duration::ZERO,
            largest: 0,
        }
    }

    fn dice(&self) -> Dice {
        let name = u64::from_le_bytes(Sha256::digest(self.name)[..8].try_into().unwrap());
        let number = self.number.load(Ordering::Relaxed);
        Dice::new(name ^ self.seed.rotate_left(32) ^ number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn give(&mut self, input: &[u8], read: &mut impl FnMut(&[u8])) {
        self.number.fetch_add(1, Ordering::Relaxed);
        self.last
            .write_all_at(input, 0)
            .and_then(|()| self.last.set_len(input.len() as u64))
            .unwrap();
        let begun = Instant::now();
        let (end, held) = most_held(|| catch_unwind(AssertUnwindSafe(|| read(input))));
        self.slowest = self.slowest.max(begun.elapsed());
        self.largest = self.largest.max(held);
        let limit = HELD + HELD_FOR_A_BYTE * input.len();
        if end.is_err() || limit < held {
            self.keep(
                input,
                if end.is_err() {
                    "it panicked".into()
                } else {
                    format!("it held {held} bytes")
                },
            );
        }
    }

    /// Adds the input to the corpus and fails.
    fn keep(&self, input: &[u8], what: String) -> ! {
        let hash: String = Sha256::digest(input)[..6]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let path = self.corpus.join(format!("found-{hash}"));
        fs::write(&path, input).unwrap();
        panic!(
            "{}: {what} (input {} of seed {}, {} bytes). The input is now {}; it comes first in every run of\n    \
             cargo test --test fuzz {}",
            self.name,
            self.number.load(Ordering::Relaxed),
            self.seed,
            input.len(),
            path.display(),
            self.name,
        );
    }

    /// Aborts the process when one input takes too long; `last` has its bytes.
    fn watch(&self) -> Arc<AtomicBool> {
        let (goes_on, number, name) = (
            Arc::new(AtomicBool::new(true)),
            self.number.clone(),
            self.name.to_owned(),
        );
        let watched = goes_on.clone();
        thread::spawn(move || {
            let (mut seen, mut since) = (0, Instant::now());
            while watched.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(200));
                let now = number.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
                if PATIENCE < since.elapsed() {
                    eprintln!(
                        "{name}: input {now} takes longer than {PATIENCE:?}; see target/tmp/fuzz-{name}"
                    );
                    std::process::abort();
                }
            }
        });
        goes_on
    }
}
