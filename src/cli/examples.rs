//! The examples in the help of each command.

/// A command line, and what it is for.
pub(super) type Example = (&'static str, &'static str);

/// The examples of each command; those of the program itself have an empty name.
pub(super) const EXAMPLES: &[(&str, &[Example])] = &[
    (
        "",
        &[
            (
                "orchestrator init",
                "write a spec for the project in this directory",
            ),
            (
                "orchestrator run specs/calculator.yaml",
                "build what a spec describes; the same line resumes it",
            ),
            (
                "orchestrator status",
                "where the run stands, why it failed, the command that goes on",
            ),
            (
                "orchestrator diff | less",
                "what the model changed, as a patch",
            ),
        ],
    ),
    (
        "init",
        &[
            (
                "orchestrator init",
                "write specs/ and lines of .gitignore for the project in this directory",
            ),
            (
                "orchestrator init ~/project --spec parser",
                "write ~/project/specs/parser.yaml",
            ),
        ],
    ),
    (
        "doctor",
        &[(
            "orchestrator doctor",
            "what a run would find here, and what would prevent one",
        )],
    ),
    (
        "run",
        &[
            (
                "orchestrator run specs/calculator.yaml",
                "build; after Ctrl+C, a crash or a pause the same line goes on",
            ),
            (
                "orchestrator run specs/calculator.yaml --budget 0.50 --max-retries 3",
                "with other limits than those of the spec",
            ),
            (
                "orchestrator run specs/calculator.yaml --continue --budget 2",
                "go on where a run failed for want of retries, money, turns or time",
            ),
            (
                "orchestrator run --workflow workflows/fix --project-dir ~/project",
                "run a workflow on a directory",
            ),
            (
                "orchestrator run --workflow workflows/fix --replay workflows/fix.log",
                "take the answers from a log: no key, no network, no cost",
            ),
        ],
    ),
    (
        "status",
        &[
            ("orchestrator status", "the run in this directory"),
            ("orchestrator status --run 6c1f", "an older run"),
        ],
    ),
    (
        "watch",
        &[
            (
                "orchestrator watch",
                "follow the run in this directory from another terminal",
            ),
            ("orchestrator watch 6c1f", "see an older run again"),
        ],
    ),
    (
        "report",
        &[
            (
                "orchestrator report",
                "write a page about the run in this directory, and print its path",
            ),
            (
                "orchestrator report 6c1f --format md -o -",
                "print an older run as Markdown, for a pull request",
            ),
        ],
    ),
    (
        "attempts",
        &[
            ("orchestrator attempts", "of the run in this directory"),
            (
                "orchestrator attempts 6c1f --json",
                "of an older run, for a program",
            ),
        ],
    ),
    (
        "diff",
        &[
            (
                "orchestrator diff",
                "what was taken in against workspace/ as it is",
            ),
            ("orchestrator diff 1 2", "what the second attempt changed"),
            ("orchestrator diff > changes.patch", "a patch for git apply"),
        ],
    ),
    (
        "restore",
        &[(
            "orchestrator restore 2",
            "bring the second attempt back into workspace/",
        )],
    ),
    (
        "runs",
        &[("orchestrator runs", "all runs of this directory")],
    ),
    (
        "apply",
        &[
            ("orchestrator apply --check", "only show what would change"),
            (
                "orchestrator apply",
                "change the files that `copy` of the spec names",
            ),
        ],
    ),
    (
        "reset",
        &[("orchestrator reset", "begin again; the logs stay")],
    ),
    (
        "serve",
        &[
            (
                "orchestrator serve --project-dir ~/project",
                "commands on stdin, responses on stdout, one JSON object per line",
            ),
            (
                "orchestrator serve --mcp --project-dir ~/project",
                "an MCP server; for Claude Code: claude mcp add NAME -- and this line",
            ),
        ],
    ),
    (
        "lint",
        &[
            ("orchestrator lint specs/calculator.yaml", "a spec"),
            ("orchestrator lint workflows/fix", "a workflow"),
        ],
    ),
    (
        "schema",
        &[(
            "orchestrator schema > specs/spec.schema.json",
            "for `# yaml-language-server: $schema=spec.schema.json` in a spec",
        )],
    ),
    (
        "diagram",
        &[(
            "orchestrator diagram workflows/fix > fix.mmd",
            "as a file for Mermaid",
        )],
    ),
    (
        "fleet",
        &[
            (
                "orchestrator fleet run specs --budget 20 --jobs 4",
                "run every spec of a folder; after Ctrl+C or a crash the same line goes on",
            ),
            (
                "orchestrator fleet status fleet",
                "every entry with its outcome, and the command that goes on",
            ),
        ],
    ),
    (
        "fleet run",
        &[
            (
                "orchestrator fleet run specs --budget 20 --jobs 4",
                "in ./fleet, four at a time, for 20 USD together",
            ),
            (
                "orchestrator fleet run specs/a.yaml --matrix model=small,large --repeat 5 --out sweep",
                "ten entries: solved per model and pass@k in the report",
            ),
            (
                "orchestrator fleet run specs --engine slurm --cpus 2 --mem 4G",
                "on a Slurm cluster",
            ),
        ],
    ),
    (
        "fleet plan",
        &[(
            "orchestrator fleet plan 'specs/**/*.yaml' --out nightly",
            "write nightly/fleet.json, for an engine of your own",
        )],
    ),
    (
        "fleet task",
        &[(
            "orchestrator fleet task nightly 0",
            "run the first entry of the plan in nightly/",
        )],
    ),
    (
        "fleet resume",
        &[
            (
                "orchestrator fleet resume fleet --budget 40",
                "go on with more money",
            ),
            (
                "orchestrator fleet resume fleet --failed",
                "continue what failed for want of retries, money, turns or time",
            ),
        ],
    ),
    (
        "fleet status",
        &[(
            "orchestrator fleet status fleet --json",
            "the same object that `fleet run --json` prints at its end",
        )],
    ),
    (
        "fleet report",
        &[(
            "orchestrator fleet report fleet",
            "write fleet/report.html, linked to a report of each run",
        )],
    ),
    (
        "fleet cancel",
        &[(
            "orchestrator fleet cancel fleet parser-1b2c3d4e",
            "stop one entry; without names all of them",
        )],
    ),
    (
        "completions",
        &[
            (
                "orchestrator completions bash > ~/.local/share/bash-completion/completions/orchestrator",
                "bash; effective in new shells",
            ),
            (
                "orchestrator completions zsh > ~/.zfunc/_orchestrator",
                "zsh, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc",
            ),
            (
                "orchestrator completions fish > ~/.config/fish/completions/orchestrator.fish",
                "fish",
            ),
        ],
    ),
    (
        "man",
        &[
            ("orchestrator man | man -l -", "read the main page"),
            ("orchestrator man run | man -l -", "read that of a command"),
            (
                "orchestrator man -o ~/.local/share/man/man1",
                "write all pages to a directory",
            ),
        ],
    ),
];

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::cli::command::{command, parse};

    /// The names of all commands, those of `fleet` as `fleet run`.
    fn names(command: &Command) -> Vec<String> {
        let mut names = Vec::new();
        for subcommand in command.get_subcommands() {
            let name = subcommand.get_name();
            names.push(name.to_owned());
            let below = self::names(subcommand).into_iter();
            names.extend(below.map(|below| format!("{name} {below}")));
        }
        names
    }

    #[test]
    fn every_command_has_examples() {
        let commands = names(&command());
        for name in &commands {
            assert!(EXAMPLES.iter().any(|(of, _)| of == name), "{name} has none");
        }
        for (of, _) in EXAMPLES {
            let is_command = of.is_empty() || commands.iter().any(|name| name == of);
            assert!(is_command, "there is no command {of}");
        }
    }

    #[test]
    fn every_example_is_a_valid_command_line_of_its_command() {
        for (of, examples) in EXAMPLES {
            for (line, purpose) in *examples {
                let own = line.split(" | ").next().unwrap_or_default();
                let own = own.split(" > ").next().unwrap_or_default();
                let words = shlex::split(own).unwrap();
                let words: Vec<std::ffi::OsString> = words.into_iter().map(Into::into).collect();
                let parsed = parse(&words, "");
                assert!(parsed.is_ok(), "{line}: {:?}", parsed.err());
                assert_eq!(words[0], "orchestrator", "{line}");
                assert!(
                    own.starts_with(format!("orchestrator {of}").trim_end()),
                    "{line}"
                );
                assert!(!purpose.is_empty() && !purpose.ends_with('.'), "{line}");
            }
        }
    }
}
