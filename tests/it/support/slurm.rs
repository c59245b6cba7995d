//! A real Slurm on loopback: a controller and two machines with four cpus each, in a temporary folder.
//!
//! All of it lives in a pid namespace whose first process reads commands from a pipe of this process: when the pipe
//! closes, also because the tests were killed, the kernel ends everything in it. A machine is a pid namespace of its
//! own below that one, so that it can be killed with all its processes.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::support::needs;
use crate::support::project::{Project, files_below, processes};
use crate::support::running::until;

/// The machines.
pub(crate) const MACHINES: [&str; 2] = ["n1", "n2"];

/// Starts each line of its input as a command, and ends with its input.
const COMMANDS: &str = "hostname localhost; while read -r line; do sh -c \"$line\" & done";

/// How the machines are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Machines {
    /// Each with processes of its own, which end with it.
    Whole,
    /// As daemons that leave their tasks behind when they are killed.
    Daemons,
}

/// A Slurm that lives as long as this value.
pub(crate) struct Slurm {
    folder: TempDir,
    machines: Machines,
    init: Child,
    commands: Mutex<Option<ChildStdin>>,
}

impl Slurm {
    /// Starts one that a test may break. `None`: the test is skipped.
    pub(crate) fn start(machines: Machines) -> Option<Slurm> {
        if !needs::slurm() {
            return None;
        }
        let folder = TempDir::with_prefix("orchestrator-slurm-").unwrap();
        // munged refuses a folder that others cannot enter.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).unwrap();
        write_configuration(folder.path());
        let mut init = Command::new("unshare")
            .args(["--uts", "--pid", "--fork", "--kill-child", "--mount-proc"])
            .args(["sh", "-c", COMMANDS])
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let commands = init.stdin.take();
        let slurm = Slurm {
            folder,
            machines,
            init,
            commands: Mutex::new(commands),
        };
        slurm.start_munge();
        slurm.start_controller();
        for machine in MACHINES {
            slurm.start_machine(machine);
        }
        slurm.until_idle();
        Some(slurm)
    }

    /// One that tests share which leave it as it is; it ends with the last of them.
    pub(crate) fn shared() -> Option<Arc<Slurm>> {
        static SHARED: Mutex<Weak<Slurm>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slurm) = shared.upgrade() {
            return Some(slurm);
        }
        let slurm = Arc::new(Slurm::start(Machines::Whole)?);
        *shared = Arc::downgrade(&slurm);
        Some(slurm)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The value of SLURM_CONF.
    pub(crate) fn configuration(&self) -> String {
        self.path("slurm.conf").display().to_string()
    }

    /// A project whose commands reach this Slurm.
    pub(crate) fn project(&self) -> Project {
        Project::new().env("SLURM_CONF", &self.configuration())
    }

    /// Runs a command of Slurm, and returns what it printed; on failure what it said.
    pub(crate) fn ask(&self, program: &str, arguments: &[&str]) -> Result<String, String> {
        let output = Command::new(program)
            .args(arguments)
            .env("SLURM_CONF", self.configuration())
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match output.status.success() {
            true => Ok(text(&output.stdout)),
            false => Err(text(&output.stderr)),
        }
    }

    /// `7_12|R|None` for each task of a fleet; `None` while the controller does not answer.
    pub(crate) fn tasks(&self, fleet_id: &str) -> Option<Vec<String>> {
        let name = format!("fleet-{fleet_id}-0");
        let listed = self.ask("squeue", &["-h", "-r", "-n", &name, "-o", "%i|%t|%r"]);
        Some(listed.ok()?.lines().map(str::to_owned).collect())
    }

    /// All that the controller has stored, with the environments of jobs.
    pub(crate) fn stored(&self) -> String {
        let files = files_below(&self.path("state")).into_values();
        files
            .map(|file| String::from_utf8_lossy(&file).into_owned())
            .collect()
    }

    /// A copy of what the controller has stored. It stores what has changed every few seconds.
    pub(crate) fn copy_stored(&self) -> PathBuf {
        let copy = self.path("state.copy");
        copy_folder(&self.path("state"), &copy);
        copy
    }

    /// Puts a copy back, so that a controller that was killed begins as if it had stored nothing since.
    pub(crate) fn restore_stored(&self, copy: &Path) {
        fs::remove_dir_all(self.path("state")).unwrap();
        copy_folder(copy, &self.path("state"));
    }

    fn execute(&self, line: &str) {
        let mut commands = self.commands.lock().unwrap();
        writeln!(commands.as_mut().unwrap(), "{line}").unwrap();
    }

    fn start_munge(&self) {
        let folder = self.folder.path().display();
        self.execute(&format!(
            "exec munged -F --origin=127.0.0.1 --key-file={folder}/munge.key --socket={folder}/munge.sock \
             --pid-file={folder}/munged.pid --log-file={folder}/munged.log --seed-file={folder}/munge.seed"
        ));
        until("munge listens", || self.path("munge.sock").exists());
    }

    pub(crate) fn start_controller(&self) {
        let folder = self.folder.path().display();
        self.execute(&format!(
            "exec slurmctld -D -f {folder}/slurm.conf >> {folder}/slurmctld.out 2>&1"
        ));
    }

    pub(crate) fn start_machine(&self, name: &str) {
        let folder = self.folder.path().display();
        let words = self.machine_command(name);
        let words: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
        let command = words.join(" ");
        self.execute(&format!("exec {command} >> {folder}/{name}.out 2>&1"));
    }

    fn machine_command(&self, name: &str) -> Vec<String> {
        let daemon = format!("slurmd -D -f {} -N {name}", self.configuration());
        let isolated = [
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
            "sh",
            "-c",
        ];
        match self.machines {
            // The shell reaps what slurmd leaves to it.
            Machines::Whole => {
                let shell = isolated.iter().map(|&word| word.to_owned());
                shell.chain([format!("{daemon}; :")]).collect()
            }
            Machines::Daemons => daemon.split(' ').map(str::to_owned).collect(),
        }
    }

    /// Resumes machines that are drained or down, as an administrator does.
    pub(crate) fn resume_machines(&self) {
        let states = self.ask("sinfo", &["-h", "-N", "-o", "%N %T"]);
        for line in states.unwrap_or_default().lines() {
            let (name, state) = line.split_once(' ').unwrap_or_default();
            if state.contains("drain") || state.contains("down") {
                let machine = format!("nodename={name}");
                let _ = self.ask("scontrol", &["update", &machine, "state=resume"]);
            }
        }
    }

    /// Kills the controller, and waits until it is gone.
    pub(crate) fn kill_controller(&self) {
        self.kill("slurmctld\0");
    }

    /// Kills a machine, with all its processes unless it is only a daemon, and waits until it is gone.
    pub(crate) fn kill_machine(&self, name: &str) {
        self.kill(&(self.machine_command(name).join("\0") + "\0"));
    }

    /// Kills the process of this Slurm whose command line begins so.
    fn kill(&self, command_line: &str) {
        let own = processes(&[&self.configuration()]);
        let is_it = |id: &u32| {
            let line = fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
            line.starts_with(command_line.as_bytes())
        };
        let id = own.into_iter().find(is_it).expect("the process is there");
        kill_process(Pid::from_raw(id.cast_signed()).unwrap(), Signal::KILL).unwrap();
        until("it is gone", || !is_it(&id));
    }

    /// Waits until the controller answers and both machines can take tasks.
    pub(crate) fn until_idle(&self) {
        until("both machines are idle", || {
            let states = self.ask("sinfo", &["-h", "-N", "-o", "%T"]);
            states.is_ok_and(|states| states.lines().filter(|state| *state == "idle").count() == 2)
        });
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // Its first process ends with its input, and with it all others.
        drop(self.commands.get_mut().map(Option::take));
        let _ = self.init.wait();
    }
}

fn copy_folder(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("-a").args([from, to]).status();
    assert!(copied.unwrap().success());
}

fn write_configuration(folder: &Path) {
    let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let ports = listeners.map(|listener| listener.local_addr().unwrap().port());
    let [controller, first, second] = ports;
    let d = folder.display();
    let configuration = format!(
        "ClusterName=test\n\
         SlurmctldHost=localhost(127.0.0.1)\n\
         SlurmctldPort={controller}\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={d}/munge.sock,cred_expire=5\n\
         StateSaveLocation={d}/state\n\
         SlurmdSpoolDir={d}/spool.%n\n\
         SlurmctldPidFile={d}/slurmctld.pid\n\
         SlurmdPidFile={d}/slurmd.%n.pid\n\
         CommunicationParameters=NoCtldInAddrAny,NoInAddrAny\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         MpiDefault=none\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         SlurmdParameters=config_overrides\n\
         SchedulerType=sched/builtin\n\
         SchedulerParameters=sched_interval=1,batch_sched_delay=0\n\
         ReturnToService=2\n\
         SlurmdTimeout=5\n\
         MessageTimeout=3\n\
         KillWait=5\n\
         NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={first} CPUs=4 RealMemory=2000\n\
         NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={second} CPUs=4 RealMemory=2000\n\
         PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE\n"
    );
    fs::write(folder.join("slurm.conf"), configuration).unwrap();
    // Before 23.11 the setting is unknown, and not needed.
    if 23 < needs::slurm_version() {
        fs::write(folder.join("cgroup.conf"), "CgroupPlugin=disabled\n").unwrap();
    }
    let key = folder.join("munge.key");
    let random: Vec<u8> = (0..8)
        .flat_map(|_| *uuid::Uuid::new_v4().as_bytes())
        .collect();
    fs::write(&key, random).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
}
