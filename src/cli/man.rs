//! `man`: the manual pages, made from the command line itself. They have no date, so that equal programs make equal pages.

use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;

use crate::cli::arguments::ManArguments;
use crate::cli::command::command;
use crate::cli::report::write_whole;
use crate::error::{Error, Result};

/// The string for an apostrophe in the text of clap.
const PREAMBLE: &str = ".ie \\n(.g .ds Aq \\(aq\n.el .ds Aq '\n";

/// Returns the page to print; with `--output`, writes all pages.
pub(super) fn main(arguments: &ManArguments) -> Result<String> {
    let mut program = command().disable_help_subcommand(true);
    program.build();
    if let Some(dir) = &arguments.output {
        return write_pages(&program, dir).map(|()| String::new());
    }
    let names = arguments.command.iter();
    let command = names.map(String::as_str).try_fold(&program, subcommand)?;
    page(command).map(|(_, text)| text)
}

fn subcommand<'a>(program: &'a Command, name: &str) -> Result<&'a Command> {
    program.find_subcommand(name).ok_or_else(|| {
        let names: Vec<&str> = program.get_subcommands().map(Command::get_name).collect();
        Error::Usage(format!(
            "invalid command: expected one of {}, found {name}",
            names.join(", ")
        ))
    })
}

fn write_pages(program: &Command, dir: &Path) -> Result<()> {
    std::fs::create_dir_all(dir).map_err(|error| Error::io("create", dir, error))?;
    let (name, text) = page(program)?;
    let path = dir.join(name);
    write_whole(&path, &text).map_err(|error| Error::io("write", &path, error))?;
    let mut below = program.get_subcommands();
    below.try_for_each(|command| write_pages(command, dir))
}

/// The file name of a page, and its text.
fn page(command: &Command) -> Result<(String, String)> {
    let page = Man::new(command.clone());
    let name = command.get_display_name().unwrap_or("orchestrator");
    let version = env!("CARGO_PKG_VERSION");
    let title = format!(".TH {name} 1 \"\" \"orchestrator {version}\" \"User Commands\"\n");
    let rendered = rendered_sections(&page, command.has_subcommands())
        .map_err(|error| Error::Bug(format!("cannot render a manual page: {error}")))?;
    let rest = sections(&after_help(command));
    let see_also = match command.has_subcommands() {
        true => "",
        false => ".SH \"SEE ALSO\"\n\\fBorchestrator\\fR(1)\n",
    };
    let text = format!("{PREAMBLE}{title}{rendered}{rest}{see_also}");
    Ok((page.get_filename(), text))
}

/// The sections that clap makes.
fn rendered_sections(page: &Man, has_subcommands: bool) -> io::Result<String> {
    let mut text = Vec::new();
    page.render_name_section(&mut text)?;
    page.render_synopsis_section(&mut text)?;
    page.render_description_section(&mut text)?;
    page.render_options_section(&mut text)?;
    if has_subcommands {
        page.render_subcommands_section(&mut text)?;
    }
    // Each section comes as a page of its own.
    Ok(String::from_utf8_lossy(&text).replace(PREAMBLE, ""))
}

fn after_help(command: &Command) -> String {
    command
        .get_after_help()
        .map(ToString::to_string)
        .unwrap_or_default()
}

/// The text below the options: a line that is not indented is a heading, other lines are shown as they are.
fn sections(text: &str) -> String {
    let mut roff = String::new();
    let mut is_open = false;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let shown = line.strip_prefix("  ");
        let end = if is_open && shown.is_none() {
            ".fi\n"
        } else {
            ""
        };
        roff += end;
        roff += &match shown {
            Some(shown) => format!("\\&{}\n", escaped(shown)),
            None => format!(".SH \"{}\"\n.nf\n", escaped(&heading(line))),
        };
        is_open = true;
    }
    if is_open { roff + ".fi\n" } else { roff }
}

fn heading(line: &str) -> String {
    match line.trim_end_matches(':') {
        "Exit codes" => "EXIT STATUS".to_owned(),
        other => other.to_uppercase(),
    }
}

/// Text that roff shows as it is, to be copied.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\e")
        .replace('-', "\\-")
        .replace('\'', "\\(aq")
        .replace('`', "\\(ga")
        .replace('~', "\\(ti")
        .replace('^', "\\(ha")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_below_the_options_becomes_sections() {
        let text = "Examples:\n  a --b 'c' ~\\\n      why\n\nExit codes:\n  0  ok\n";
        let expected = ".SH \"EXAMPLES\"\n.nf\n\\&a \\-\\-b \\(aqc\\(aq \\(ti\\e\n\\&    why\n.fi\n\
                        .SH \"EXIT STATUS\"\n.nf\n\\&0  ok\n.fi\n";
        assert_eq!(sections(text), expected);
        assert_eq!(sections(""), "");
    }
}
