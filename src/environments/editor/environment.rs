//! The environment `editor`: its views, the commands on them, and its screen.

use std::fmt::Write;
use std::path::Path;

use super::command::{self, EditorCommand};
use super::error::EditorError;
use super::file::TextFile;
use super::pattern::{CpuBudget, Pattern, PatternError};
use super::search;
use super::view::{FileView, MAX_LINES, ViewProblem};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::error::Error;
use crate::workspace::{FrozenPaths, ProjectDir};

const MAX_VIEWS: usize = 5;
/// CPU time for finding one view.
const VIEW_MILLISECONDS: i64 = 1000;

/// The environment `editor`.
#[derive(Debug)]
pub struct EditorEnvironment {
    pub(super) project: ProjectDir,
    /// In the order they were opened.
    pub(super) views: Vec<FileView>,
    last_id: u64,
}

impl EditorEnvironment {
    /// Opens a directory.
    pub fn new(project_dir: &Path) -> Result<EditorEnvironment, Error> {
        Ok(EditorEnvironment {
            project: ProjectDir::open(project_dir)?,
            views: Vec::new(),
            last_id: 0,
        })
    }

    /// Sets the files that are not changed, and those that are not shown either.
    pub fn freezing(mut self, frozen: FrozenPaths) -> EditorEnvironment {
        self.project.freeze(frozen);
        self
    }

    fn execute(&mut self, command: &str) -> Result<String, EditorError> {
        if command.contains('\0') {
            let text = "A command cannot contain a NUL character";
            return Err(EditorError(text.to_owned()));
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
    ) -> Result<String, EditorError> {
        let invalid = |what, source, error: PatternError| {
            EditorError(format!("Invalid {what} pattern /{source}/: {error}"))
        };
        let start = Pattern::parse(start).map_err(|error| invalid("start", start, error))?;
        let end = Pattern::parse(end).map_err(|error| invalid("end", end, error))?;
        let file = TextFile::read(&self.project, path).map_err(|e| e.cannot("view", path))?;
        let mut view = FileView::new(
            self.last_id + 1,
            file.name.clone(),
            file.real(),
            (start, end),
            label.map(str::to_owned),
        );
        if let Err(problem) = view.turn(0, &file.text, &mut view_budget()) {
            let why = match problem {
                ViewProblem::NoMatch => format!("no line matches /{}/", view.start),
                ViewProblem::TooSlow => problem.to_string(),
            };
            return Err(EditorError(format!("Cannot view {}: {why}", view.path)));
        }
        Ok(self.add(view))
    }

    /// Adds a view, and closes the oldest if there are too many.
    fn add(&mut self, view: FileView) -> String {
        let mut answer = format!(
            "Added view [{}] {} /{}/ to /{}/",
            view.id, view.path, view.start, view.end
        );
        if self.views.len() == MAX_VIEWS {
            let oldest = self.views.remove(0).id;
            let _ = write!(
                answer,
                "\nClosed view [{oldest}]: at most {MAX_VIEWS} views are open"
            );
        }
        self.last_id = view.id;
        self.views.push(view);
        answer
    }

    fn search(&self, pattern: &str, glob: Option<&str>) -> Result<String, EditorError> {
        let pattern = Pattern::parse(pattern).map_err(|error| {
            EditorError(format!("Invalid search pattern \"{pattern}\": {error}"))
        })?;
        search::search(&self.project, &pattern, glob)
    }

    fn close(&mut self, id: u64) -> Result<String, EditorError> {
        let at = self.index_of(id)?;
        self.views.remove(at);
        Ok(format!("Closed view [{id}]"))
    }

    fn turn(&mut self, id: u64, steps: isize) -> Result<String, EditorError> {
        let at = self.index_of(id)?;
        let view = &mut self.views[at];
        let file = TextFile::read(&self.project, &view.path)
            .map_err(|error| error.cannot("view", &view.path))?;
        match view.turn(steps, &file.text, &mut view_budget()) {
            Ok((index, count)) => Ok(format!("Showing match {index}/{count}")),
            Err(problem) => Err(EditorError(format!("Cannot view {}: {problem}", view.path))),
        }
    }

    fn index_of(&self, id: u64) -> Result<usize, EditorError> {
        let found = self.views.iter().position(|view| view.id == id);
        found.ok_or_else(|| {
            let open: Vec<String> = self.views.iter().map(|v| format!("[{}]", v.id)).collect();
            let open = match open.is_empty() {
                true => "none".to_owned(),
                false => open.join(", "),
            };
            EditorError(format!("There is no view [{id}]. Open views: {open}"))
        })
    }
}

impl Environment for EditorEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        Some(match self.execute(command) {
            Ok(output) => Response::done(output),
            Err(EditorError(output)) => Response::failed(output),
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
        let mut separator = "\n";
        self.views.retain_mut(|view| {
            content.push_str(separator);
            separator = "\n\n";
            show(&self.project, view, &mut content)
        });
        // A view has at most one line above its own and two below.
        ScreenSection {
            content,
            max_lines: 1 + MAX_VIEWS * (MAX_LINES + 3),
        }
    }
}

/// Adds a view to the screen; a view that cannot be shown is reported there, and `false` is returned.
fn show(project: &ProjectDir, view: &mut FileView, screen: &mut String) -> bool {
    let problem = match TextFile::read(project, &view.path) {
        Err(error) => format!("ERROR: {error}"),
        Ok(file) => {
            view.real = file.real();
            match view.show(&file.text, &mut view_budget(), screen) {
                Ok(()) => return true,
                Err(problem @ ViewProblem::NoMatch) => format!("BROKEN: {problem}"),
                Err(problem @ ViewProblem::TooSlow) => format!("ERROR: {problem}"),
            }
        }
    };
    let _ = write!(screen, "  [{}] {} [{problem}]", view.id, view.path);
    false
}

/// The CPU time that finding one view may take.
pub(super) fn view_budget() -> CpuBudget {
    CpuBudget::milliseconds(VIEW_MILLISECONDS)
}
