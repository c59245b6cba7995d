//! Looks up the program of a command before it is started: whether it exists, and whether the sandbox shows it.
//!
//! The lookup is that of a job (`check_env::find_program`), seen from outside the sandbox. A relative path with a slash
//! is not looked up: it lies in the workspace and may be generated.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, OFlags, access};

use crate::process::check_env::{WorkspacePaths, trusted_entries};
use crate::process::sandbox::policy::SandboxPolicy;

/// How much of a script the kernel reads for its `#!` line.
const INTERPRETER_LINE: u64 = 256;

/// Where the programs of a check are looked up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ProgramSearch<'a> {
    /// The value of PATH that the check gets, before entries that the sandbox does not show are left out.
    pub path: &'a OsStr,
    pub workspace: &'a Path,
    /// `None`: without a sandbox.
    pub policy: Option<&'a SandboxPolicy>,
}

/// Why a program cannot start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MissingProgram {
    NotOnPath,
    NotThere(PathBuf),
    DanglingLink(PathBuf),
    Folder(PathBuf),
    NotAFile(PathBuf),
    NotExecutable(PathBuf),
    /// A program, and which of its links and its target do not exist in the sandbox.
    NotShown(PathBuf, Vec<PathBuf>),
    /// A script, and what is wrong with its interpreter.
    Interpreter(PathBuf, Box<MissingProgram>),
}

impl ProgramSearch<'_> {
    /// Why a program cannot start, if that is known beforehand.
    pub(crate) fn missing(&self, program: &str) -> Option<MissingProgram> {
        let path = Path::new(program);
        let found = match program.contains('/') {
            false => self.on_path(program),
            true if path.is_absolute() && !self.is_in_workspace(path) => self.at(path),
            true => return None,
        };
        found.and_then(|path| self.interpreter(&path)).err()
    }

    fn on_path(&self, name: &str) -> Result<PathBuf, MissingProgram> {
        let workspace = WorkspacePaths::new(self.workspace);
        let mut problem = None;
        for path in trusted_entries(self.path, &workspace).map(|entry| entry.join(name)) {
            match self.at(&path) {
                Ok(path) => return Ok(path),
                Err(found @ (MissingProgram::NotShown(..) | MissingProgram::NotExecutable(_))) => {
                    problem = problem.or(Some(found));
                }
                Err(_) => {}
            }
        }
        Err(problem.unwrap_or(MissingProgram::NotOnPath))
    }

    /// Checks an absolute path.
    fn at(&self, path: &Path) -> Result<PathBuf, MissingProgram> {
        let program = path.to_owned();
        match fs::metadata(path) {
            Err(_) if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) => {
                Err(MissingProgram::DanglingLink(program))
            }
            Err(_) => Err(MissingProgram::NotThere(program)),
            Ok(found) if found.is_dir() => Err(MissingProgram::Folder(program)),
            Ok(found) if !found.is_file() => Err(MissingProgram::NotAFile(program)),
            Ok(_) if access(path, Access::EXEC_OK).is_err() => {
                Err(MissingProgram::NotExecutable(program))
            }
            Ok(_) => match self
                .policy
                .map(|policy| policy.unseen(path))
                .unwrap_or_default()
            {
                unseen if unseen.is_empty() => Ok(program),
                unseen => Err(MissingProgram::NotShown(program, unseen)),
            },
        }
    }

    fn interpreter(&self, program: &Path) -> Result<(), MissingProgram> {
        match interpreter_of(program) {
            Some(interpreter)
                if interpreter.is_absolute() && !self.is_in_workspace(&interpreter) =>
            {
                self.at(&interpreter).map(drop).map_err(|missing| {
                    MissingProgram::Interpreter(program.to_owned(), Box::new(missing))
                })
            }
            _ => Ok(()),
        }
    }

    /// Whether a path may still be generated.
    fn is_in_workspace(&self, path: &Path) -> bool {
        path.starts_with(self.workspace)
            || path.starts_with(WorkspacePaths::new(self.workspace).real)
    }
}

/// The interpreter in the `#!` line of a script.
pub(super) fn interpreter_of(program: &Path) -> Option<PathBuf> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let mut head = Vec::new();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(program)
        .ok()?;
    file.take(INTERPRETER_LINE).read_to_end(&mut head).ok()?;
    let line = head
        .strip_prefix(b"#!")?
        .split(|byte| *byte == b'\n')
        .next()?;
    let mut parts = line
        .split(|byte| [b' ', b'\t'].contains(byte))
        .filter(|part| !part.is_empty());
    parts
        .next()
        .map(|part| PathBuf::from(OsStr::from_bytes(part)))
}

impl MissingProgram {
    /// The paths that the sandbox would have to show.
    pub(crate) fn unseen(&self) -> &[PathBuf] {
        match self {
            MissingProgram::NotShown(_, unseen) => unseen,
            MissingProgram::Interpreter(_, missing) => missing.unseen(),
            _ => &[],
        }
    }

    /// What the user can do about it, apart from opening `unseen` paths.
    pub(crate) fn help(&self, program: &str) -> String {
        match self {
            MissingProgram::NotOnPath => {
                format!(
                    "install it, or name it by its path; one of the project itself is `./{program}`"
                )
            }
            MissingProgram::NotThere(_) | MissingProgram::DanglingLink(_) => {
                "install it, or correct the path".to_owned()
            }
            MissingProgram::NotExecutable(path) => format!("chmod +x {}", path.display()),
            MissingProgram::Folder(_) | MissingProgram::NotAFile(_) => {
                "name the program itself".to_owned()
            }
            MissingProgram::NotShown(..) => "name its folder in `sandbox.read`".to_owned(),
            MissingProgram::Interpreter(script, missing) => match **missing {
                MissingProgram::NotShown(..) => missing.help(program),
                _ => format!("correct the first line of {}", script.display()),
            },
        }
    }
}

impl std::error::Error for MissingProgram {}

impl fmt::Display for MissingProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MissingProgram::NotOnPath => write!(f, "it is not on the PATH that checks get"),
            MissingProgram::NotThere(path) => write!(f, "{} does not exist", path.display()),
            MissingProgram::DanglingLink(path) => {
                write!(f, "{} is a link that leads nowhere", path.display())
            }
            MissingProgram::Folder(path) => write!(f, "{} is a folder", path.display()),
            MissingProgram::NotAFile(path) => {
                write!(f, "{} is not a regular file", path.display())
            }
            MissingProgram::NotExecutable(path) => {
                write!(f, "{} is not executable", path.display())
            }
            MissingProgram::NotShown(path, _) => write!(
                f,
                "{} exists, but the sandbox does not show it",
                path.display()
            ),
            MissingProgram::Interpreter(script, missing) => {
                write!(
                    f,
                    "of the interpreter that {} asks for: {missing}",
                    script.display()
                )
            }
        }
    }
}
