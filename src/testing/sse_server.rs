//! A loopback HTTP server that serves exact bytes.

mod connection;
mod reply;

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use reply::{Gate, HttpEnd, HttpFraming, HttpReply};

const MAX_CONNECTIONS: usize = 256;
const MAX_REQUESTS: usize = 65_536;

/// A loopback HTTP/1.1 server for tests of providers and everything above them.
///
/// It answers requests with scripted [`HttpReply`]s in order of arrival, byte for byte and chunk for chunk as a test wants
/// them, and records what it was sent. It listens on 127.0.0.1 only, on a port of the system's choice. Dropping it
/// ends its tasks and closes its connections.
///
/// A request that no reply is left for is recorded and answered with status 501: a provider reports it as an error,
/// and [`SseServer::unexpected`] counts it.
///
/// Bounds: 256 connections at once (more are closed at once), 65,536 requests, 64 KiB of request head, 64 MiB of
/// request body.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// use zidane::testing::{HttpReply, SseServer};
///
/// let server = SseServer::start([HttpReply::sse("data: [DONE]\n\n")]).await?;
/// // point a provider's base URL at `server.url()`, run it, and then:
/// assert_eq!(server.requests().len(), 0);
/// assert_eq!(server.unserved(), 1);
/// # Ok::<(), std::io::Error>(()) })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct SseServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

/// A request as it was received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedRequest {
    /// E.g. `POST`.
    pub method: String,
    /// The path with its query.
    pub path: String,
    /// Names in lower case, in the order sent.
    pub headers: Vec<(String, String)>,
    /// The body, transfer coding removed.
    pub body: Bytes,
    /// The connection it came on, counted from 0: equal numbers mean a connection that was kept alive.
    pub connection: usize,
}

impl ReceivedRequest {
    /// The first header of that name, in any case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// When it is none.
    pub fn json(&self) -> serde_json::Result<serde_json::Value> {
        serde_json::from_slice(&self.body)
    }
}

/// How far the reply to a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HttpReplyState {
    /// It is being sent, or waits.
    Sending,
    /// It was sent to its scripted end.
    Sent,
    /// The client closed the connection before that.
    ClientLeft,
}

type Handler = dyn Fn(&ReceivedRequest) -> HttpReply + Send + Sync;

struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<u64>,
    handler: Option<Box<Handler>>,
}

#[derive(Default)]
struct State {
    script: VecDeque<HttpReply>,
    requests: Vec<ReceivedRequest>,
    replies: Vec<HttpReplyState>,
    unexpected: usize,
    connections: usize,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let value = change(&mut self.state());
        self.changed.send_modify(|version| *version = version.wrapping_add(1));
        value
    }

    fn accept(&self, request: ReceivedRequest) -> (Option<usize>, HttpReply) {
        let handled = self.handler.as_ref().map(|handler| handler(&request));
        self.change(|state| {
            if state.requests.len() >= MAX_REQUESTS {
                return (None, HttpReply::new(503).end(HttpEnd::Close));
            }
            let reply = handled.or_else(|| state.script.pop_front()).unwrap_or_else(|| {
                state.unexpected += 1;
                HttpReply::json(501, r#"{"error":{"message":"the test server has no reply for this request"}}"#)
            });
            state.requests.push(request);
            state.replies.push(HttpReplyState::Sending);
            (Some(state.requests.len() - 1), reply)
        })
    }

    fn settle(&self, index: usize, end: HttpReplyState) {
        self.change(|state| {
            if let Some(reply) = state.replies.get_mut(index) {
                *reply = end;
            }
        });
    }

    async fn wait_until<T>(&self, mut found: impl FnMut(&State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            if let Some(value) = found(&self.state()) {
                return value;
            }
            if changed.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

/// Counts a connection as open for as long as its task lives.
struct OpenConnection(Arc<Shared>);

impl OpenConnection {
    fn new(shared: Arc<Shared>) -> Self {
        shared.change(|state| state.connections += 1);
        Self(shared)
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.change(|state| state.connections = state.connections.saturating_sub(1));
    }
}

impl SseServer {
    /// Starts a server that gives these replies, one per request, in order of arrival.
    ///
    /// # Errors
    /// When no port can be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn start(script: impl IntoIterator<Item = HttpReply>) -> io::Result<Self> {
        Self::bind(script.into_iter().collect(), None).await
    }

    /// Starts a server that asks `handler` for each reply.
    ///
    /// # Errors
    /// When no port can be had.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn with_handler(
        handler: impl Fn(&ReceivedRequest) -> HttpReply + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::bind(VecDeque::new(), Some(Box::new(handler))).await
    }

    async fn bind(script: VecDeque<HttpReply>, handler: Option<Box<Handler>>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Mutex::new(State { script, ..State::default() });
        let shared = Arc::new(Shared { state, changed: watch::Sender::new(0), handler });
        let task = tokio::spawn(accept_all(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// The base URL, `http://127.0.0.1:<port>`, without a slash at its end.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The address it listens on.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a reply to the end of the script.
    pub fn push(&self, reply: HttpReply) {
        self.shared.change(|state| state.script.push_back(reply));
    }

    /// The requests so far, in order of arrival.
    #[must_use]
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.shared.state().requests.clone()
    }

    /// How far the replies to those requests came.
    #[must_use]
    pub fn replies(&self) -> Vec<HttpReplyState> {
        self.shared.state().replies.clone()
    }

    /// Scripted replies that nobody asked for yet.
    #[must_use]
    pub fn unserved(&self) -> usize {
        self.shared.state().script.len()
    }

    /// Requests that came when the script was used up.
    #[must_use]
    pub fn unexpected(&self) -> usize {
        self.shared.state().unexpected
    }

    /// Connections open now, idle ones included.
    #[must_use]
    pub fn open_connections(&self) -> usize {
        self.shared.state().connections
    }

    /// Waits until `count` requests have arrived, and gives the last of them. `count` 0 counts as 1.
    ///
    /// Has no time limit of its own. Cancelling it loses nothing.
    pub async fn wait_for_request(&self, count: usize) -> ReceivedRequest {
        self.shared.wait_until(|state| state.requests.get(count.saturating_sub(1)).cloned()).await
    }

    /// Waits until the reply to request `index` (from 0) has ended, and says how. A client that leaves is noticed
    /// while the reply waits or stalls, and at a write that fails.
    ///
    /// Has no time limit of its own. Cancelling it loses nothing.
    pub async fn wait_for_reply(&self, index: usize) -> HttpReplyState {
        let ended = |state: &State| state.replies.get(index).copied().filter(|reply| *reply != HttpReplyState::Sending);
        self.shared.wait_until(ended).await
    }

    /// Waits until at most `count` connections are open.
    ///
    /// Has no time limit of its own. Cancelling it loses nothing.
    pub async fn wait_for_connections(&self, count: usize) {
        self.shared.wait_until(|state| (state.connections <= count).then_some(())).await;
    }
}

impl Drop for SseServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept_all(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and the connections' tasks with it.
    let mut connections = JoinSet::new();
    let mut number = 0_usize;
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                if connections.len() >= MAX_CONNECTIONS {
                    continue;
                }
                let shared = Arc::clone(&shared);
                let open = OpenConnection::new(Arc::clone(&shared));
                connections.spawn(async move {
                    connection::serve(stream, number, shared).await;
                    drop(open);
                });
                number = number.wrapping_add(1);
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
