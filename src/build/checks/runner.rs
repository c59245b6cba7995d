//! Test runners, and which of them a command starts: directly, by a script of `package.json`, or in a shell line.

use std::fmt;

/// A test runner, or a format that many runners write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Runner {
    Pytest,
    Unittest,
    Cargo,
    Nextest,
    Go,
    Node,
    Jest,
    Vitest,
    Mocha,
    Ctest,
    Junit,
    Tap,
}

impl Runner {
    /// What makes a runner count its tests, for runners that can be configured not to.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Runner::Mocha => Some("mocha: use the spec or json reporter"),
            Runner::Node => Some("node --test: use the tap or spec reporter"),
            Runner::Jest => Some("jest: use the default reporter or --json"),
            Runner::Vitest => Some("vitest: use the default, verbose or json reporter"),
            Runner::Go => Some("go test: let it have -v or -json"),
            Runner::Ctest => Some("ctest: do not use -N or -Q"),
            Runner::Pytest
            | Runner::Unittest
            | Runner::Cargo
            | Runner::Nextest
            | Runner::Junit
            | Runner::Tap => None,
        }
    }
}

impl fmt::Display for Runner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Runner::Pytest => "pytest",
            Runner::Unittest => "unittest",
            Runner::Cargo => "cargo test",
            Runner::Nextest => "nextest",
            Runner::Go => "go test",
            Runner::Node => "node --test",
            Runner::Jest => "jest",
            Runner::Vitest => "vitest",
            Runner::Mocha => "mocha",
            Runner::Ctest => "ctest",
            Runner::Junit => "junit",
            Runner::Tap => "tap",
        })
    }
}

/// How many scripts may run each other.
const MAX_DEPTH: u32 = 4;

/// The runner that a command starts; `script` looks up a script of `package.json`.
pub(crate) fn of_command(
    command: &[String],
    script: &dyn Fn(&str) -> Option<String>,
) -> Option<Runner> {
    let words: Vec<&str> = command.iter().map(String::as_str).collect();
    of_words(&words, script, MAX_DEPTH)
}

fn of_words(words: &[&str], script: &dyn Fn(&str) -> Option<String>, depth: u32) -> Option<Runner> {
    let (program, rest) = words.split_first()?;
    let depth = depth.checked_sub(1)?;
    let again = |rest: &[&str]| of_words(rest, script, depth);
    match base_name(program) {
        "env" => again(after_assignments(rest)),
        "nice" | "nohup" | "time" | "command" | "exec" | "xvfb-run" | "stdbuf" => {
            again(after_options(rest, &["-n"]))
        }
        "timeout" => again(after_options(rest, &["-s", "-k"]).get(1..)?),
        "uv" | "poetry" | "pipenv" | "pdm" | "hatch" | "rye" => match after_options(rest, &[]) {
            ["run", rest @ ..] => again(after_options(
                rest,
                &["--with", "-p", "--python", "--group", "--extra"],
            )),
            _ => None,
        },
        "coverage" => match rest {
            ["run", rest @ ..] => python(rest, &again),
            _ => None,
        },
        "sh" | "bash" | "dash" | "zsh" | "ksh" => {
            let (flags, line) = rest.split_first()?;
            let is_line = flags.starts_with('-') && flags.ends_with('c');
            is_line.then(|| of_line(line.first()?, script, depth))?
        }
        "npx" | "bunx" | "pnpx" => again(after_options(rest, &["-p", "--package"])),
        "npm" | "pnpm" | "yarn" | "bun" => package_manager(rest, script, depth),
        "cargo" => cargo(rest),
        "go" => match after_options(rest, &["-C"]) {
            ["test", rest @ ..] if !rest.contains(&"-c") => Some(Runner::Go),
            _ => None,
        },
        "node" | "nodejs" => node(rest),
        name if is_python(name) => python(rest, &again),
        name => by_name(name),
    }
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Runners that are programs or scripts of that name.
fn by_name(name: &str) -> Option<Runner> {
    let name = [".js", ".cjs", ".mjs", ".cmd", ".py"]
        .iter()
        .find_map(|end| name.strip_suffix(end))
        .unwrap_or(name);
    match name {
        "pytest" | "py.test" => Some(Runner::Pytest),
        "jest" => Some(Runner::Jest),
        "vitest" => Some(Runner::Vitest),
        "mocha" | "_mocha" => Some(Runner::Mocha),
        "ctest" => Some(Runner::Ctest),
        "cargo-nextest" => Some(Runner::Nextest),
        _ => numbered_pytest(name),
    }
}

/// `pytest-3`, as in Debian.
fn numbered_pytest(name: &str) -> Option<Runner> {
    let version = name.strip_prefix("pytest-")?;
    version
        .chars()
        .all(|letter| letter.is_ascii_digit() || letter == '.')
        .then_some(Runner::Pytest)
}

/// `python`, `python3`, `python3.12`, `pypy3`.
fn is_python(name: &str) -> bool {
    let version = name
        .strip_prefix("python")
        .or_else(|| name.strip_prefix("pypy"));
    version.is_some_and(|version| {
        version
            .chars()
            .all(|letter| letter.is_ascii_digit() || matches!(letter, '.' | 't'))
    })
}

fn python(mut rest: &[&str], again: &dyn Fn(&[&str]) -> Option<Runner>) -> Option<Runner> {
    while let [word, following @ ..] = rest {
        let letters = word
            .strip_prefix('-')
            .filter(|letters| !letters.starts_with('-'));
        match letters {
            // A script, or `--`.
            None if !word.starts_with("--") => return by_name(base_name(word)),
            None => rest = following,
            Some(letters) => {
                // Flags may be combined; the last may be followed by its value, as in `-Bmpytest`.
                let place = letters.find(['m', 'c', 'W', 'X']);
                let Some(place) = place else {
                    rest = following;
                    continue;
                };
                let (glued, letter) = (&letters[place + 1..], &letters[place..=place]);
                let (value, after) = match (glued, following) {
                    ("", [value, after @ ..]) => (*value, after),
                    (glued, after) => (glued, after),
                };
                match letter {
                    "m" => return module(value, after, again),
                    "c" => return None,
                    _ => rest = after,
                }
            }
        }
    }
    None
}

fn module(name: &str, rest: &[&str], again: &dyn Fn(&[&str]) -> Option<Runner>) -> Option<Runner> {
    match (name, rest) {
        ("pytest" | "py.test", _) => Some(Runner::Pytest),
        ("unittest" | "unittest.__main__", _) => Some(Runner::Unittest),
        ("coverage", ["run", rest @ ..]) => python(rest, again),
        _ => None,
    }
}

fn cargo(rest: &[&str]) -> Option<Runner> {
    let rest = rest
        .strip_prefix(&[rest
            .first()
            .filter(|word| word.starts_with('+'))
            .copied()
            .unwrap_or_default()])
        .unwrap_or(rest);
    let rest = after_options(
        rest,
        &[
            "--config",
            "--manifest-path",
            "-C",
            "-Z",
            "--color",
            "--target-dir",
        ],
    );
    match rest {
        ["test" | "t", rest @ ..] if !rest.contains(&"--no-run") => Some(Runner::Cargo),
        ["nextest", "run" | "r", ..] => Some(Runner::Nextest),
        _ => None,
    }
}

fn node(mut rest: &[&str]) -> Option<Runner> {
    const WITH_VALUE: [&str; 8] = [
        "-r",
        "--require",
        "--import",
        "--loader",
        "--experimental-loader",
        "-C",
        "--conditions",
        "--test-reporter",
    ];
    while let [word, following @ ..] = rest {
        match *word {
            "--test" => return Some(Runner::Node),
            word if WITH_VALUE.contains(&word) => rest = following.get(1..).unwrap_or_default(),
            word if word.starts_with('-') => rest = following,
            script => return by_name(base_name(script)),
        }
    }
    None
}

/// `npm test`, `npm run unit`, `npm exec jest`, `yarn jest`.
fn package_manager(
    rest: &[&str],
    script: &dyn Fn(&str) -> Option<String>,
    depth: u32,
) -> Option<Runner> {
    match after_options(
        rest,
        &[
            "--prefix",
            "-C",
            "--dir",
            "--cwd",
            "-w",
            "--workspace",
            "--filter",
        ],
    ) {
        ["test" | "t" | "tst", ..] => of_line(&script("test")?, script, depth),
        ["run" | "run-script", rest @ ..] => {
            of_line(&script(after_options(rest, &[]).first()?)?, script, depth)
        }
        ["exec" | "dlx" | "x", rest @ ..] => of_words(
            after_options(rest, &["-p", "--package", "-c"]),
            script,
            depth,
        ),
        [name, ..] => match script(name) {
            Some(line) => of_line(&line, script, depth),
            None => by_name(name),
        },
        [] => None,
    }
}

/// The runner that a shell line ends with; none where its output is redirected to a file.
fn of_line(line: &str, script: &dyn Fn(&str) -> Option<String>, depth: u32) -> Option<Runner> {
    let pipeline = last_pipeline(line)?;
    let (command, filters) = pipeline.split_first()?;
    let of_words = |words: &[String]| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        of_words(after_assignments(&words), script, depth)
    };
    if filters.iter().all(|words| passes_input_on(words)) {
        of_words(command)
    } else {
        of_words(pipeline.last()?)
    }
}

/// Whether a program prints what it reads, or the end of it, and so a runner's summary.
fn passes_input_on(words: &[String]) -> bool {
    words
        .first()
        .is_some_and(|program| ["cat", "tail", "tee"].contains(&base_name(program)))
}

/// The commands of the last pipeline of a line, by their words; `None` where the shell redirects or backgrounds it.
fn last_pipeline(line: &str) -> Option<Vec<Vec<String>>> {
    let mut pipeline = vec![vec![String::new()]];
    let mut characters = line.chars().peekable();
    let mut quote = None;
    while let Some(character) = characters.next() {
        let words = pipeline.last_mut()?;
        let last = words.last_mut()?;
        match (quote, character) {
            (Some(open), character) if character == open => quote = None,
            (Some(_), character) => last.push(character),
            (None, '\'' | '"') => quote = Some(character),
            (None, '\\') => last.extend(characters.next()),
            (None, '>') if last == "2" && characters.by_ref().take(2).eq("&1".chars()) => {
                last.clear();
            }
            (None, '>' | '`' | '(' | ')') => return None,
            (None, '|') if characters.peek() != Some(&'|') => {
                characters.next_if_eq(&'&');
                pipeline.push(vec![String::new()]);
            }
            (None, ';' | '&' | '|' | '\n') => {
                let is_end = characters
                    .clone()
                    .all(|rest| rest.is_whitespace() || rest == ';');
                if !is_end {
                    pipeline = vec![vec![String::new()]];
                    characters.next_if(|next| *next == character && character != '\n');
                } else if character != ';' && character != '\n' {
                    return None;
                }
            }
            (None, character) if character.is_whitespace() => words.push(String::new()),
            (None, character) => last.push(character),
        }
    }
    for words in &mut pipeline {
        words.retain(|word| !word.is_empty());
    }
    let is_whole = pipeline.iter().all(|words| !words.is_empty());
    is_whole.then_some(pipeline)
}

/// Skips options, those in `with_value` with the word that follows.
fn after_options<'a, 'b>(mut words: &'b [&'a str], with_value: &[&str]) -> &'b [&'a str] {
    while let [word, rest @ ..] = words {
        if !word.starts_with('-') {
            break;
        }
        words = if with_value.contains(word) {
            rest.get(1..).unwrap_or_default()
        } else {
            rest
        };
        if *word == "--" {
            break;
        }
    }
    words
}

/// Skips `NAME=value` and the options of `env`.
fn after_assignments<'a, 'b>(words: &'b [&'a str]) -> &'b [&'a str] {
    let is_name = |name: &str| {
        !name.is_empty()
            && name
                .chars()
                .all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
    };
    let mut words = after_options(words, &["-u", "-C"]);
    while let [word, rest @ ..] = words {
        if !word.split_once('=').is_some_and(|(name, _)| is_name(name)) {
            break;
        }
        words = rest;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &[&str], expected: impl Into<Option<Runner>>) {
        let script = |name: &str| match name {
            "test" => Some("eslint . && NODE_ENV=test jest --ci".to_owned()),
            "unit" => Some("npm run inner".to_owned()),
            "inner" => Some("node --test".to_owned()),
            "loop" => Some("npm run loop".to_owned()),
            "logged" => Some("mocha | tee log".to_owned()),
            _ => None,
        };
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        assert_eq!(
            of_command(&command, &script),
            expected.into(),
            "{command:?}"
        );
    }

    fn check_line(line: &str, expected: impl Into<Option<Runner>>) {
        check(&line.split(' ').collect::<Vec<_>>(), expected);
    }

    #[test]
    fn python_runners() {
        for line in [
            "pytest",
            "py.test -q",
            "/opt/venv/bin/pytest tests",
            "pytest-3",
            "python3 -m pytest",
            "python -B -m pytest -q",
            "python3.12 -Bm pytest",
            "/usr/bin/python3.11 -X dev -W error -mpytest",
            "python3 -m coverage run -m pytest",
            "coverage run -m pytest",
            "python .venv/bin/pytest",
            "uv run --with x pytest",
            "poetry run python -m pytest",
            "env A=b C= pytest",
            "timeout 60 pytest",
        ] {
            check_line(line, Runner::Pytest);
        }
        check_line("python3 -m unittest discover", Runner::Unittest);
        check_line("python3 -I -m unittest", Runner::Unittest);
        for line in [
            "python3 run.py",
            "python3 -c pytest",
            "python3 -m pip install pytest",
            "python3",
            "pythonic -m pytest",
        ] {
            check_line(line, None);
        }
        check_line("python3 -m", None);
    }

    #[test]
    fn compiled_runners() {
        for line in [
            "cargo test",
            "cargo +nightly test --offline",
            "/x/cargo -q --config a.b=1 t",
        ] {
            check_line(line, Runner::Cargo);
        }
        check_line("cargo nextest run", Runner::Nextest);
        check_line("go test ./...", Runner::Go);
        check_line("go -C sub test", Runner::Go);
        check_line("ctest --test-dir build", Runner::Ctest);
        for line in [
            "cargo build",
            "cargo test --no-run",
            "cargo nextest list",
            "go build test",
            "go vet",
            "go test -c",
        ] {
            check_line(line, None);
        }
    }

    #[test]
    fn javascript_runners() {
        check_line("node --test", Runner::Node);
        check_line("node -r x --test tests/", Runner::Node);
        check_line(
            "node --experimental-vm-modules node_modules/jest/bin/jest.js",
            Runner::Jest,
        );
        check_line("node_modules/.bin/vitest run", Runner::Vitest);
        check_line("npx --yes mocha", Runner::Mocha);
        check_line("npm test", Runner::Jest);
        check_line("npm --prefix sub test", Runner::Jest);
        check_line("pnpm run unit", Runner::Node);
        check_line("yarn unit", Runner::Node);
        check_line("yarn jest", Runner::Jest);
        check_line("npm exec -- vitest", Runner::Vitest);
        check_line("npm run logged", Runner::Mocha);
        for line in [
            "node app.js --test",
            "npm run loop",
            "npm run build",
            "npm install",
            "npm",
        ] {
            check_line(line, None);
        }
    }

    #[test]
    fn shell_lines() {
        for (line, expected) in [
            ("cd sub && python3 -m unittest", Some(Runner::Unittest)),
            ("set -e; A='b c' go test ./...;", Some(Runner::Go)),
            ("pytest; true", None),
            ("pytest | tee log", Some(Runner::Pytest)),
            ("pytest 2>&1 |& tee log | tail -n 3", Some(Runner::Pytest)),
            ("false || cargo test 2>&1 | cat", Some(Runner::Cargo)),
            ("go test ./... | tee log", Some(Runner::Go)),
            ("go test ./... | tail -1", Some(Runner::Go)),
            ("cargo test | grep -q ok", None),
            ("cat list | xargs pytest", None),
            ("cat list | pytest", Some(Runner::Pytest)),
            ("pytest |", None),
            ("pytest 2> log", None),
            ("pytest > log", None),
            ("pytest &", None),
            ("echo 'pytest'", None),
            ("", None),
        ] {
            check(&["sh", "-c", line], expected);
        }
        check(&["bash", "-euc", "cargo test"], Runner::Cargo);
        check(&["bash", "run.sh"], None);
    }
}
