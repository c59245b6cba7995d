//! The records that the loop inside bash sends over the channel.
//!
//! A record is enclosed in NUL SOH and NUL STX, which no text of a shell can contain; its fields end with a NUL. In front
//! of a record is the text that builtins print: the traps and the jobs of a report. Other programs can write to the
//! channel, too, so only lines that have the form of a trap or a job are used.

const START: &[u8] = b"\0\x01";
const END: &[u8] = b"\0\x02";
/// How much text in front of a record is parsed.
const MAX_BEFORE: usize = 64 * 1024;
/// No record is longer, with the text in front of it.
const MAX_RECORD: usize = 4 * MAX_BEFORE;

/// A message of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BashRecord {
    /// An interrupt was announced before the command began, and it was not run.
    NotBegun,
    /// A command has ended.
    Ended(ShellReport),
    /// The loop was entered; the command before is over.
    Entered(ShellReport),
    /// The loop itself read the line that enters it, and skipped it.
    Skipped,
    /// The loop was left by a `break` in a command.
    LeftLoop,
}

/// The state of the shell between two commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShellReport {
    pub status: i32,
    /// The one-letter options.
    pub options: String,
    pub cwd: String,
    /// The command that sets the trap on DEBUG, which is removed between commands.
    pub debug_trap: Option<String>,
    /// The same for SIGINT, which is ignored between commands.
    pub interrupt_trap: Option<String>,
    pub has_error_trap: bool,
    pub jobs: Vec<BackgroundJob>,
}

/// A job as `jobs -l` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackgroundJob {
    pub number: u32,
    pub pid: u32,
    pub command: String,
}

/// Parses records from a stream of bytes.
#[derive(Debug, Default)]
pub struct BashRecords {
    bytes: Vec<u8>,
    /// No record ends before this offset.
    searched: usize,
}

impl BashRecords {
    /// Adds bytes, split anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Takes the next complete and known record.
    pub fn take(&mut self) -> Option<BashRecord> {
        loop {
            let rest = self.bytes.get(self.searched..).unwrap_or_default();
            let Some(end) = find(rest, END) else {
                // A command can write to the channel, too, and forever.
                if 2 * MAX_RECORD < self.bytes.len() {
                    self.bytes.drain(..self.bytes.len() - MAX_RECORD);
                }
                self.searched = self.bytes.len().saturating_sub(1);
                return None;
            };
            let whole: Vec<u8> = self
                .bytes
                .drain(..self.searched + end + END.len())
                .collect();
            self.searched = 0;
            if let Some(record) = parse(whole.get(..whole.len() - END.len()).unwrap_or_default()) {
                return Some(record);
            }
        }
    }
}

fn parse(bytes: &[u8]) -> Option<BashRecord> {
    // An incomplete record of an interrupted loop may precede it.
    let start = bytes
        .windows(START.len())
        .rposition(|window| window == START)?;
    let before = String::from_utf8_lossy(&bytes[start.saturating_sub(MAX_BEFORE)..start]);
    let mut fields = bytes[start + START.len()..]
        .split(|byte| *byte == 0)
        .map(String::from_utf8_lossy);
    match fields.next()?.as_ref() {
        "N" => Some(BashRecord::NotBegun),
        "K" => Some(BashRecord::Skipped),
        "T" => Some(BashRecord::LeftLoop),
        kind @ ("D" | "R") => {
            let status = fields.next()?.parse().ok()?;
            let (options, cwd) = (fields.next()?.into_owned(), fields.next()?.into_owned());
            let mut report = ShellReport {
                status,
                options,
                cwd,
                jobs: jobs(&before),
                ..ShellReport::default()
            };
            for (name, command) in traps(&before) {
                match name {
                    "DEBUG" => report.debug_trap = Some(command.to_owned()),
                    "ERR" => report.has_error_trap = true,
                    _ => report.interrupt_trap = Some(command.to_owned()),
                }
            }
            Some(if kind == "D" {
                BashRecord::Ended(report)
            } else {
                BashRecord::Entered(report)
            })
        }
        _ => None,
    }
}

/// The traps that `trap -p` printed, each with the command that sets it.
fn traps(text: &str) -> Vec<(&'static str, &str)> {
    let mut traps = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("trap -- ") {
        rest = &rest[start..];
        let ends =
            ["DEBUG", "ERR", "SIGINT", "INT"].map(|name| (rest.find(&format!("' {name}\n")), name));
        let Some((end, name)) = ends
            .into_iter()
            .filter_map(|(end, name)| Some((end?, name)))
            .min()
        else {
            break;
        };
        let (command, after) = rest.split_at(end + "' ".len() + name.len());
        traps.push((name, command));
        rest = after;
    }
    traps
}

/// Parses `[1]+  4877 Running   sleep 30 | cat &  (wd: ~)`; every process of a pipeline has its own line.
///
/// Every program that ran in the foreground is in the list once, as done.
fn jobs(text: &str) -> Vec<BackgroundJob> {
    let mut jobs: Vec<BackgroundJob> = Vec::new();
    let mut is_done = false;
    for line in text.lines() {
        if let Some((job, state)) = job(line) {
            is_done = state == "Done" || state.starts_with("Exit ");
            jobs.extend((!is_done).then_some(job));
        } else if let Some(last) = jobs.last_mut().filter(|_| !is_done) {
            let more = line
                .trim_start()
                .trim_start_matches(|character: char| character.is_ascii_digit())
                .trim_start();
            last.command.push(' ');
            last.command.push_str(more);
        }
    }
    for job in &mut jobs {
        let command = job.command.trim_end();
        let command = command
            .rsplit_once("  (wd: ")
            .map_or(command, |(command, _)| command);
        job.command = command.trim_end_matches('&').trim_end().to_owned();
    }
    jobs
}

/// A job and its state.
fn job(line: &str) -> Option<(BackgroundJob, &str)> {
    let (number, rest) = line.strip_prefix('[')?.split_once(']')?;
    let rest = rest.trim_start_matches(['+', '-']).trim_start();
    let (pid, rest) = rest.split_once(' ')?;
    let (state, command) = rest.split_once("  ")?;
    let job = BackgroundJob {
        number: number.parse().ok()?,
        pid: pid.parse().ok()?,
        command: command.trim_start().to_owned(),
    };
    Some((job, state))
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::proptest;

    use super::{BackgroundJob, BashRecord, BashRecords, MAX_RECORD, ShellReport};

    fn read(parts: &[&[u8]]) -> Vec<BashRecord> {
        let mut records = BashRecords::default();
        let mut all = Vec::new();
        for part in parts {
            records.push(part);
            all.extend(std::iter::from_fn(|| records.take()));
        }
        all
    }

    fn report(before: &str) -> ShellReport {
        match read(&[before.as_bytes(), b"\0\x01D\x003\0hiBs\0/a b\n\0\x02"]).pop() {
            Some(BashRecord::Ended(report)) => report,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_record_may_be_split_anywhere() {
        let all = b"noise\0\x01N\0\x02\0\x01K\0\x02more\0\x01T\0\x02";
        let wanted = vec![
            BashRecord::NotBegun,
            BashRecord::Skipped,
            BashRecord::LeftLoop,
        ];
        assert_eq!(read(&[all]), wanted);
        assert_eq!(read(&all.chunks(1).collect::<Vec<_>>()), wanted);
    }

    #[test]
    fn an_incomplete_record_is_skipped() {
        assert_eq!(
            read(&[b"\0\x01D\x000\0hi", b"\0\x01K\0\x02"]),
            [BashRecord::Skipped]
        );
    }

    #[test]
    fn a_report_has_its_fields() {
        let report = report("");
        assert_eq!(
            (report.status, report.options.as_str(), report.cwd.as_str()),
            (3, "hiBs", "/a b\n")
        );
        assert_eq!(
            (report.debug_trap, report.has_error_trap, report.jobs),
            (None, false, Vec::new())
        );
    }

    #[test]
    fn traps_are_parsed() {
        let traps = "T\n+ trap -p\ntrap -- 'echo '\\''T'\\''\nx' DEBUG\ntrap -- 'echo E' ERR\ntrap -- '' SIGINT\n+ set\n";
        let report = report(traps);
        assert_eq!(
            report.debug_trap.as_deref(),
            Some("trap -- 'echo '\\''T'\\''\nx' DEBUG")
        );
        assert_eq!(report.interrupt_trap.as_deref(), Some("trap -- '' SIGINT"));
        assert!(report.has_error_trap);
        assert_eq!(self::report("trap -- 'e' ERR\n").debug_trap, None);
    }

    #[test]
    fn jobs_have_a_number_a_pid_and_a_command() {
        let text = "[1]   4877 Running                 sleep 30 &  (wd: /tmp)\n\
                    [2]-  4878 Running                 sleep 40\n      4879                       | cat &\n\
                    [3]+  4880 Running                 ( sleep 20; echo a ) &\n";
        let wanted = [
            (1, 4877, "sleep 30"),
            (2, 4878, "sleep 40 | cat"),
            (3, 4880, "( sleep 20; echo a )"),
        ];
        let wanted = wanted.map(|(number, pid, command)| BackgroundJob {
            number,
            pid,
            command: command.to_owned(),
        });
        assert_eq!(report(text).jobs, wanted);
    }

    #[test]
    fn jobs_that_are_done_are_left_out() {
        let text = "[1]    302 Done                    cat /dev/null\n\
                    [2]    303 Exit 1                  false | true\n       304                       | false\n\
                    [3]-   305 Running                 sleep 40\n       306 Done                    | true &\n\
                    [4]+   307 Done                    make\n";
        let jobs = report(text).jobs;
        assert_eq!(
            jobs.iter()
                .map(|job| (job.number, job.pid))
                .collect::<Vec<_>>(),
            [(3, 305)]
        );
    }

    #[test]
    fn bytes_without_a_record_are_dropped() {
        let mut records = BashRecords::default();
        for _ in 0..100 {
            records.push(&[b'x'; 1 << 16]);
            assert_eq!(records.take(), None);
            assert!(records.bytes.len() <= 3 * MAX_RECORD);
        }
        records.push(b"[1]+  12 Running  sleep 9 &\n\0\x01D\x003\0h\0/\0\x02");
        assert!(matches!(records.take(), Some(BashRecord::Ended(report)) if report.status == 3));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(parts: Vec<Vec<u8>>, before: String) {
            read(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
            let _ = (super::traps(&before), super::jobs(&before));
        }

        #[test]
        fn similar_lines_do_not_make_it_panic(before in r"(trap -- |' DEBUG\n|' ERR\n|' INT\n|\[1\]\+? |[0-9 é\n]|  \(wd: |&)*") {
            let _ = (super::traps(&before), super::jobs(&before));
        }
    }
}
