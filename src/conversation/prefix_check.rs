//! For tests: after every event of recorded runs, what is folded from the log is what the live projections are.

use std::fmt::Debug;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use crate::conversation::event_log::{EventLog, OpenedLog, Projection};
use crate::conversation::log_state::LogState;
use crate::events::bus::Bus;
use crate::events::{Event, MAIN_AGENT};
use crate::secrets::Secrets;
use crate::state::journal::{Journal, read_lines};

const RUN_ID: &str = "0b9e6ed1-62a1-4d51-9a63-3a8a1d7f0c11";
const KEY: &str = "secret-key-123";

/// The logs of recorded runs: examples; builds with patches, hidden checks, reminders and retries; a workflow that was
/// killed and resumed.
fn recorded_logs() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = ["specs/agent", "tests/corpus/log"]
        .map(|folder| fs::read_dir(root.join(folder)).unwrap())
        .into_iter()
        .flatten();
    let paths = files.map(|file| file.unwrap().path());
    paths
        .filter(|path| path.is_file() && path.extension().is_none_or(|end| end == "log"))
        .collect()
}

fn events(path: &Path) -> Vec<Event> {
    let mut events = Vec::new();
    read_lines(&File::open(path).unwrap(), None, &mut |_, event| {
        events.push(event)
    })
    .unwrap();
    events
}

/// The projections that a resume would find in the log of a folder, and the journal.
fn fold<P: Projection + Default>(folder: &Path) -> (LogState, P, Journal) {
    let (mut state, mut facts) = (LogState::default(), P::default());
    let logs = File::open(folder).unwrap();
    let (journal, repair) = Journal::open(
        logs.as_fd(),
        folder,
        RUN_ID,
        &Secrets::new([KEY.to_owned()]),
        &mut |line, event| {
            state.apply(line, &event);
            facts.apply(line, &event);
        },
    )
    .unwrap();
    assert_eq!(repair, None);
    (state, facts, journal)
}

/// Records the events of all recorded runs, and compares after each. `check` gets the live projection, the number of its
/// lines, and the folded one. Returns the number of events.
pub(crate) fn check_every_prefix<P>(check: impl Fn(&P, u64, &P)) -> usize
where
    P: Projection + Default + Debug + PartialEq + 'static,
{
    let mut count = 0;
    for path in recorded_logs() {
        let folder = tempfile::tempdir().unwrap();
        let (state, facts, journal) = fold::<P>(folder.path());
        let facts = Arc::new(Mutex::new(facts));
        let opened = OpenedLog {
            journal,
            bus: Bus::default(),
            has_details: true,
            has_live_view: false,
            state,
            facts: facts.clone(),
        };
        let log = EventLog::new(MAIN_AGENT, opened);
        for event in events(&path) {
            log.record(event).unwrap();
            // A note with a key in it: the live projection has what the log has.
            if count % 7 == 0 {
                log.note(format!("{count}: {KEY}")).unwrap();
            }
            let (state, folded, journal) = fold::<P>(folder.path());
            let live = facts.lock().unwrap();
            assert_eq!(log.read(LogState::clone), state, "{}", path.display());
            assert_eq!(*live, folded, "{}", path.display());
            check(&live, journal.lines(), &folded);
            count += 1;
        }
    }
    count
}
