//! Where calls arrive: a socket in a private directory, read by a thread of its own.
//!
//! The thread answers what needs no tools, so that a long call keeps no ping waiting, and hands the rest over; the
//! tools are touched by their owner alone. A call that nobody waits for any more, because it was cancelled or its
//! client is gone, is told to who carries it out.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::io::retry_on_intr;
use serde_json::Value;

use crate::llm::line_buffer::LineBuffer;
use crate::llm::mcp::protocol::{self, McpMessage, McpMethod, McpRequest};
use crate::llm::mcp::relay::short;
use crate::llm::mcp::{ToolCall, Toolbox};

const SOCKET: &str = "mcp.sock";
/// Clients at once, and requests that wait: far more than one client needs.
const MOST_CLIENTS: usize = 8;
const MOST_WAITING: usize = 256;
/// How long a client may take to take an answer.
const PATIENCE: Duration = Duration::from_secs(10);
const CHUNK: usize = 64 << 10;

/// A socket and what has arrived at it. Dropping it closes it.
pub struct McpServer {
    path: PathBuf,
    shared: Arc<Mutex<SharedQueue>>,
    /// Readable when something waits.
    bell: UnixStream,
    /// Readable when nobody waits for the call under way any more.
    cancelled: UnixStream,
    /// Its end is the end of the thread.
    _quit: UnixStream,
}

/// What the thread and the desk share.
#[derive(Default)]
struct SharedQueue {
    requests: VecDeque<ArrivedCall>,
    /// The client and the id of the call under way.
    under_way: Option<(u64, Value)>,
}

struct ArrivedCall {
    client: u64,
    request: McpRequest,
    reply_to: Arc<Mutex<UnixStream>>,
}

impl McpServer {
    /// Opens a desk with its socket in a directory that is private.
    pub fn open(directory: &Path) -> io::Result<McpServer> {
        let path = directory.join(SOCKET);
        let (_folder, address) = short(&path)?;
        let listener = UnixListener::bind(address)?;
        let shared: Arc<Mutex<SharedQueue>> = Arc::default();
        let (bell, ring) = pair()?;
        let (cancelled, cancel) = pair()?;
        let (quit, theirs) = UnixStream::pair()?;
        let reader = McpReader {
            listener,
            shared: shared.clone(),
            ring,
            cancel,
            quit: theirs,
            clients: Vec::new(),
            met: 0,
        };
        thread::Builder::new()
            .name("mcp".to_owned())
            .spawn(move || reader.read_on())?;
        Ok(McpServer {
            path,
            shared,
            bell,
            cancelled,
            _quit: quit,
        })
    }

    /// Returns where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a descriptor that is readable when somebody waits.
    pub fn readable_when_called(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Serves everybody who waits, in this turn of the model; returns whether that may go on, or the run ends.
    pub fn serve(&mut self, toolbox: &mut dyn Toolbox, turn: u32) -> bool {
        empty(&self.bell);
        while let Some(arrived) = self.next() {
            let result = match &arrived.request.method {
                McpMethod::Known(result) => result.clone(),
                McpMethod::ListTools => protocol::listed(&toolbox.offers()),
                McpMethod::CallTool { name, arguments } => {
                    let call = ToolCall {
                        name,
                        arguments,
                        turn,
                        cancelled: self.cancelled.as_fd(),
                    };
                    let Some(outcome) = toolbox.call(call) else {
                        return false;
                    };
                    protocol::called(&outcome)
                }
            };
            let is_wanted = lock(&self.shared).under_way.take().is_some();
            if is_wanted {
                say(
                    &arrived.reply_to,
                    &protocol::answer(&arrived.request.id, result),
                );
            }
        }
        true
    }

    fn next(&mut self) -> Option<ArrivedCall> {
        let mut waiting = lock(&self.shared);
        let arrived = waiting.requests.pop_front()?;
        waiting.under_way = Some((arrived.client, arrived.request.id.clone()));
        // What was cancelled before is none of this one's business.
        empty(&self.cancelled);
        Some(arrived)
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The thread.
struct McpReader {
    listener: UnixListener,
    shared: Arc<Mutex<SharedQueue>>,
    ring: UnixStream,
    cancel: UnixStream,
    quit: UnixStream,
    clients: Vec<McpClient>,
    met: u64,
}

struct McpClient {
    number: u64,
    stream: UnixStream,
    reply_to: Arc<Mutex<UnixStream>>,
    lines: LineBuffer,
}

impl McpReader {
    fn read_on(mut self) {
        loop {
            let (quit, others) = match self.ready() {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if quit {
                return;
            }
            // Clients first: who has come meanwhile has no place in the list yet.
            for index in (0..self.clients.len())
                .rev()
                .filter(|index| others[index + 1])
            {
                if !self.hear(index) {
                    self.disconnect(index);
                }
            }
            if others[0] {
                self.welcome();
            }
        }
    }

    /// Waits; returns whether to end, and who has something to say: the listener, then each client.
    fn ready(&self) -> Result<(bool, Vec<bool>), Errno> {
        let streams = self.clients.iter().map(|client| client.stream.as_fd());
        let fds = [self.quit.as_fd(), self.listener.as_fd()]
            .into_iter()
            .chain(streams);
        let mut fds: Vec<PollFd<'_>> = fds
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        retry_on_intr(|| poll(&mut fds, None))?;
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        Ok((ready.next().unwrap_or(true), ready.collect()))
    }

    fn welcome(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        if self.clients.len() == MOST_CLIENTS {
            return;
        }
        let _ = stream.set_write_timeout(Some(PATIENCE));
        let Ok(reply_to) = stream.try_clone() else {
            return;
        };
        self.met += 1;
        let reply_to = Arc::new(Mutex::new(reply_to));
        self.clients.push(McpClient {
            number: self.met,
            stream,
            reply_to,
            lines: LineBuffer::default(),
        });
    }

    /// Hears what a client says; returns whether it will say more.
    fn hear(&mut self, index: usize) -> bool {
        let mut chunk = vec![0; CHUNK];
        let client = &mut self.clients[index];
        match client.stream.read(&mut chunk) {
            Ok(0) => return false,
            Ok(count) => client.lines.push(&chunk[..count]),
            Err(error) => return error.kind() == io::ErrorKind::Interrupted,
        }
        loop {
            match self.clients[index].lines.take() {
                Ok(Some(line)) if line.trim_ascii().is_empty() => {}
                Ok(Some(line)) => self.take(index, protocol::read(&line)),
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn take(&mut self, index: usize, message: McpMessage) {
        let McpClient {
            number, reply_to, ..
        } = &self.clients[index];
        match message {
            McpMessage::Nothing => {}
            McpMessage::Refused(answer) => say(reply_to, &answer),
            McpMessage::Request(McpRequest {
                id,
                method: McpMethod::Known(result),
            }) => say(reply_to, &protocol::answer(&id, result)),
            McpMessage::Cancelled(id) => {
                self.forget(|client, asked| client == *number && *asked == id)
            }
            McpMessage::Request(request) => {
                let mut waiting = lock(&self.shared);
                if waiting.requests.len() == MOST_WAITING {
                    return say(reply_to, &protocol::busy(&request.id));
                }
                waiting.requests.push_back(ArrivedCall {
                    client: *number,
                    request,
                    reply_to: reply_to.clone(),
                });
                let _ = (&self.ring).write(&[0]);
            }
        }
    }

    fn disconnect(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        self.forget(|number, _| number == client.number);
    }

    /// Forgets requests that nobody waits for.
    fn forget(&self, is_meant: impl Fn(u64, &Value) -> bool) {
        let mut waiting = lock(&self.shared);
        waiting
            .requests
            .retain(|arrived| !is_meant(arrived.client, &arrived.request.id));
        if waiting
            .under_way
            .take_if(|(client, id)| is_meant(*client, id))
            .is_some()
        {
            let _ = (&self.cancel).write(&[0]);
        }
    }
}

/// Sends one line; a client that does not take it is on its way out.
fn say(to: &Mutex<UnixStream>, value: &Value) {
    let _ = lock(to).write_all(format!("{value}\n").as_bytes());
}

/// Returns two ends of which neither blocks.
fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    Ok((read, write))
}

fn empty(mut bell: &UnixStream) {
    while bell.read(&mut [0; 64]).is_ok_and(|count| 0 < count) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
