//! The editor: views of files that stay on the screen, edits of what they show, search.
//!
//! It runs no process, so every command is over when it was begun. `command.rs` reads commands, `place.rs` holds the
//! project directory and lets nothing lead out of it, `view.rs` finds what is shown, `edit.rs` changes it and `write.rs`
//! puts it on the disk, `search.rs` goes through the tree; `text.rs` and `pattern.rs` know lines and what matches them.
//! Files are read anew for every screen; nothing is remembered of them but what a view last showed.

mod command;
mod edit;
mod glob;
mod pattern;
mod resolve;
mod search;
#[cfg(test)]
mod tests;
mod text;
mod view;
mod walk;
mod write;

use std::fmt::Write;
use std::path::{Component, Path};

use self::command::EditorCommand;
use self::pattern::{CpuBudget, Pattern};
pub use self::resolve::FrozenPaths;
use self::resolve::{PathError, ProjectDir, ResolvedPath};
use self::view::{FileView, MAX_LINES, ViewProblem};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::error::Error;

const MAX_VIEWS: usize = 5;
/// The processor's time that finding one view may take.
const VIEW_MILLISECONDS: i64 = 1000;

/// The environment `editor`.
#[derive(Debug)]
pub struct EditorEnvironment {
    project: ProjectDir,
    /// In the order they were opened.
    views: Vec<FileView>,
    last_id: u64,
}

impl EditorEnvironment {
    /// Returns an editor of the files in this directory, without views.
    pub fn new(project_dir: &Path) -> Result<EditorEnvironment, Error> {
        Ok(EditorEnvironment {
            project: ProjectDir::open(project_dir)?,
            views: Vec::new(),
            last_id: 0,
        })
    }

    /// Returns the editor with files that it shows and does not change.
    pub fn freezing(mut self, frozen: FrozenPaths) -> EditorEnvironment {
        self.project.freeze(frozen);
        self
    }

    /// Carries out a command; the error is the text of a response that failed.
    fn execute(&mut self, command: &str) -> Result<String, String> {
        if command.contains('\0') {
            return Err("A command cannot contain a NUL character".to_owned());
        }
        match command::parse(command)? {
            EditorCommand::View {
                path,
                start,
                end,
                label,
            } => self.view(&path, start, end, label),
            EditorCommand::Edit {
                path,
                first,
                last,
                content,
            } => self.edit(&path, first, last, content),
            EditorCommand::Search { pattern, glob } => self.search(&pattern, glob.as_deref()),
            EditorCommand::Create { path, content } => self.create(&path, content),
            EditorCommand::Close(id) => self.close(id),
            EditorCommand::NextMatch(id) => self.turn(id, 1),
            EditorCommand::PrevMatch(id) => self.turn(id, -1),
        }
    }

    fn view(
        &mut self,
        path: &str,
        start: &str,
        end: &str,
        label: Option<&str>,
    ) -> Result<String, String> {
        let refused = |what, source, reason| format!("Invalid {what} pattern /{source}/: {reason}");
        let start = Pattern::parse(start).map_err(|reason| refused("start", start, reason))?;
        let end = Pattern::parse(end).map_err(|reason| refused("end", end, reason))?;
        let (place, text, _) = self
            .project
            .read(Path::new(path))
            .map_err(|problem| cannot("view", path, problem))?;
        let path = self.called(path, &place);
        let mut view = FileView::new(
            self.last_id + 1,
            path,
            place.real,
            (start, end),
            label.map(str::to_owned),
        );
        view.turn(0, &text, &mut effort())
            .map_err(|lost| match lost {
                ViewProblem::NoMatch => format!(
                    "Cannot view {}: no line matches /{}/",
                    view.path, view.start
                ),
                ViewProblem::TooSlow => {
                    format!("Cannot view {}: its patterns take too long", view.path)
                }
            })?;
        let mut answer = format!(
            "Added view [{}] {} /{}/ to /{}/",
            view.id, view.path, view.start, view.end
        );
        if self.views.len() == MAX_VIEWS {
            let oldest = self.views.remove(0);
            let _ = write!(
                answer,
                "\nClosed view [{}]: at most {MAX_VIEWS} views are open",
                oldest.id
            );
        }
        self.last_id = view.id;
        self.views.push(view);
        Ok(answer)
    }

    fn search(&self, pattern: &str, glob: Option<&str>) -> Result<String, String> {
        let pattern = Pattern::parse(pattern)
            .map_err(|reason| format!("Invalid search pattern \"{pattern}\": {reason}"))?;
        search::search(&self.project, &pattern, glob)
    }

    fn close(&mut self, id: u64) -> Result<String, String> {
        let at = self.index_of(id)?;
        self.views.remove(at);
        Ok(format!("Closed view [{id}]"))
    }

    fn turn(&mut self, id: u64, steps: isize) -> Result<String, String> {
        let at = self.index_of(id)?;
        let view = &mut self.views[at];
        let (_, text, _) = self
            .project
            .read(Path::new(&view.path))
            .map_err(|problem| cannot("view", &view.path, problem))?;
        match view.turn(steps, &text, &mut effort()) {
            Ok((index, count)) => Ok(format!("Showing match {index}/{count}")),
            Err(lost) => Err(format!("Cannot view {}: {}", view.path, reason(lost))),
        }
    }

    fn index_of(&self, id: u64) -> Result<usize, String> {
        self.views
            .iter()
            .position(|view| view.id == id)
            .ok_or_else(|| {
                let open: Vec<String> = self
                    .views
                    .iter()
                    .map(|view| format!("[{}]", view.id))
                    .collect();
                let open = if open.is_empty() {
                    "none".to_owned()
                } else {
                    open.join(", ")
                };
                format!("There is no view [{id}]. Open views: {open}")
            })
    }

    /// Returns how a file is called: relative to the project, and without `.` and `..`.
    fn called(&self, path: &str, place: &ResolvedPath) -> String {
        let relative = self.project.relative(Path::new(path)).unwrap_or_default();
        let is_plain = relative
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        if is_plain {
            relative
        } else {
            place.real.clone()
        }
        .to_string_lossy()
        .into_owned()
    }
}

impl Environment for EditorEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        Some(match self.execute(command) {
            Ok(output) => Response::done(output),
            Err(output) => Response::failed(output),
        })
    }

    fn wait(&mut self, _: WaitLimit<'_>) -> WaitResult {
        WaitResult::Ended(Response::default())
    }

    fn take_output(&mut self) -> String {
        String::new()
    }

    fn is_running(&self) -> bool {
        false
    }

    fn interrupt(&mut self) {}

    fn restart(&mut self) {
        self.views.clear();
    }

    fn screen(&mut self) -> ScreenSection {
        if self.views.is_empty() {
            return ScreenSection::new("Editor (no views)");
        }
        let mut content = "Views:".to_owned();
        let mut border = "\n";
        self.views.retain_mut(|view| {
            content.push_str(border);
            border = "\n\n";
            show(&self.project, view, &mut content)
        });
        // A view has a line above and two below its own at most.
        ScreenSection {
            content,
            max_lines: 1 + MAX_VIEWS * (MAX_LINES + 3),
        }
    }
}

/// Adds a view to the screen; returns false if it is lost, which the screen then says instead.
fn show(project: &ProjectDir, view: &mut FileView, screen: &mut String) -> bool {
    let wrong = match project.read(Path::new(&view.path)) {
        Err(problem) => format!("ERROR: {problem}"),
        Ok((place, text, _)) => {
            view.real = place.real;
            match view.show(&text, &mut effort(), screen) {
                Ok(()) => return true,
                Err(ViewProblem::NoMatch) => format!("BROKEN: {}", reason(ViewProblem::NoMatch)),
                Err(ViewProblem::TooSlow) => format!("ERROR: {}", reason(ViewProblem::TooSlow)),
            }
        }
    };
    let _ = write!(screen, "  [{}] {} [{wrong}]", view.id, view.path);
    false
}

fn effort() -> CpuBudget {
    CpuBudget::milliseconds(VIEW_MILLISECONDS)
}

fn reason(lost: ViewProblem) -> &'static str {
    match lost {
        ViewProblem::NoMatch => "patterns not found",
        ViewProblem::TooSlow => "its patterns take too long",
    }
}

/// The text of a response that failed at a file.
fn cannot(verb: &str, path: &str, problem: PathError) -> String {
    format!("Cannot {verb} {path}: {problem}")
}
