//! The MCP server: a socket in a private directory, read by a thread.
//!
//! The thread answers requests that need no tools, so that a long call does not delay a ping, and queues the others for
//! the owner of the tools. A call that was cancelled, or whose client is gone, is interrupted.

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

use crate::json_rpc;
use crate::llm::line_buffer::LineBuffer;
use crate::llm::mcp::protocol::{self, McpMessage, McpMethod, McpRequest, NamedCall};
use crate::llm::mcp::relay::short_path;
use crate::llm::mcp::{ToolCall, Toolbox};

const SOCKET: &str = "mcp.sock";
/// Connected clients, and queued requests: far more than one client needs.
const MAX_CLIENTS: usize = 8;
const MAX_QUEUED: usize = 256;
/// How long a client may take to read an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
const CHUNK: usize = 64 << 10;

/// A socket and the requests that arrived at it. Dropping it closes it.
pub(in crate::llm) struct McpServer {
    path: PathBuf,
    shared: Arc<Mutex<SharedQueue>>,
    /// Readable when a request is queued.
    queued: UnixStream,
    /// Readable when the current call is cancelled.
    cancelled: UnixStream,
    /// Closing it ends the thread.
    _quit: UnixStream,
}

/// What the thread and the server share.
#[derive(Default)]
struct SharedQueue {
    requests: VecDeque<QueuedCall>,
    /// The client and the id of the current call.
    current: Option<(u64, Value)>,
}

struct QueuedCall {
    client: u64,
    request: McpRequest,
    reply_to: Arc<Mutex<UnixStream>>,
}

impl McpServer {
    /// Creates the socket in a directory, which has to be private.
    pub(crate) fn open(directory: &Path) -> io::Result<McpServer> {
        let path = directory.join(SOCKET);
        let (_folder, address) = short_path(&path)?;
        let listener = UnixListener::bind(address)?;
        let shared: Arc<Mutex<SharedQueue>> = Arc::default();
        let (queued, queued_signal) = pair()?;
        let (cancelled, cancelled_signal) = pair()?;
        let (quit, quit_of_reader) = UnixStream::pair()?;
        let reader = McpReader {
            listener,
            shared: shared.clone(),
            queued: queued_signal,
            cancelled: cancelled_signal,
            quit: quit_of_reader,
            clients: Vec::new(),
            clients_seen: 0,
        };
        thread::Builder::new()
            .name("mcp".to_owned())
            .spawn(move || reader.run())?;
        Ok(McpServer {
            path,
            shared,
            queued,
            cancelled,
            _quit: quit,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a descriptor that is readable when a request is queued.
    pub(crate) fn readable_when_called(&self) -> BorrowedFd<'_> {
        self.queued.as_fd()
    }

    /// Serves all queued requests, in this turn of the model. Returns `false` when the run ends.
    pub(crate) fn serve(&mut self, toolbox: &mut dyn Toolbox, turn: u32) -> bool {
        drain(&self.queued);
        while let Some(queued) = self.next() {
            let result = match &queued.request.method {
                McpMethod::Known(result) => result.clone(),
                McpMethod::ListTools => protocol::listed(&toolbox.offers()),
                McpMethod::CallTool(NamedCall { name, arguments }) => {
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
            let is_wanted = lock(&self.shared).current.take().is_some();
            if is_wanted {
                send(
                    &queued.reply_to,
                    &json_rpc::answer(&queued.request.id, result),
                );
            }
        }
        true
    }

    fn next(&mut self) -> Option<QueuedCall> {
        let mut shared = lock(&self.shared);
        let queued = shared.requests.pop_front()?;
        shared.current = Some((queued.client, queued.request.id.clone()));
        // An earlier cancellation does not concern this call.
        drain(&self.cancelled);
        Some(queued)
    }
}

impl Drop for McpServer {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The state of the thread.
struct McpReader {
    listener: UnixListener,
    shared: Arc<Mutex<SharedQueue>>,
    queued: UnixStream,
    cancelled: UnixStream,
    quit: UnixStream,
    clients: Vec<McpClient>,
    clients_seen: u64,
}

struct McpClient {
    number: u64,
    stream: UnixStream,
    reply_to: Arc<Mutex<UnixStream>>,
    lines: LineBuffer,
}

impl McpReader {
    fn run(mut self) {
        loop {
            let (quit, ready) = match self.ready() {
                Ok(ready) => ready,
                Err(Errno::INTR) => continue,
                Err(_) => return,
            };
            if quit {
                return;
            }
            // Clients first: accepting one changes the list.
            for index in (0..self.clients.len())
                .rev()
                .filter(|index| ready[index + 1])
            {
                if !self.read_client(index) {
                    self.disconnect(index);
                }
            }
            if ready[0] {
                self.accept();
            }
        }
    }

    /// Waits; returns whether to end, and which descriptors are readable: the listener, then each client.
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

    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else {
            return;
        };
        if self.clients.len() == MAX_CLIENTS {
            return;
        }
        let _ = stream.set_write_timeout(Some(WRITE_TIMEOUT));
        let Ok(reply_to) = stream.try_clone() else {
            return;
        };
        self.clients_seen += 1;
        let reply_to = Arc::new(Mutex::new(reply_to));
        self.clients.push(McpClient {
            number: self.clients_seen,
            stream,
            reply_to,
            lines: LineBuffer::default(),
        });
    }

    /// Reads from a client; returns whether more can follow.
    fn read_client(&mut self, index: usize) -> bool {
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
            McpMessage::Ignored => {}
            McpMessage::Refused(answer) => send(reply_to, &answer),
            McpMessage::Request(McpRequest {
                id,
                method: McpMethod::Known(result),
            }) => send(reply_to, &json_rpc::answer(&id, result)),
            McpMessage::Cancelled(id) => {
                self.cancel(|client, requested| client == *number && *requested == id)
            }
            McpMessage::Request(request) => {
                let mut shared = lock(&self.shared);
                if shared.requests.len() == MAX_QUEUED {
                    return send(reply_to, &protocol::busy(&request.id));
                }
                shared.requests.push_back(QueuedCall {
                    client: *number,
                    request,
                    reply_to: reply_to.clone(),
                });
                let _ = (&self.queued).write(&[0]);
            }
        }
    }

    fn disconnect(&mut self, index: usize) {
        let client = self.clients.swap_remove(index);
        self.cancel(|number, _| number == client.number);
    }

    /// Cancels the requests that match.
    fn cancel(&self, matches: impl Fn(u64, &Value) -> bool) {
        let mut shared = lock(&self.shared);
        shared
            .requests
            .retain(|queued| !matches(queued.client, &queued.request.id));
        let current = shared.current.take_if(|(client, id)| matches(*client, id));
        if current.is_some() {
            let _ = (&self.cancelled).write(&[0]);
        }
    }
}

/// Sends one line. Errors are ignored: a client that does not read is closing.
fn send(to: &Mutex<UnixStream>, value: &Value) {
    let _ = lock(to).write_all(format!("{value}\n").as_bytes());
}

/// Returns a non-blocking socket pair.
fn pair() -> io::Result<(UnixStream, UnixStream)> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    write.set_nonblocking(true)?;
    Ok((read, write))
}

fn drain(mut stream: &UnixStream) {
    while stream.read(&mut [0; 64]).is_ok_and(|count| 0 < count) {}
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
