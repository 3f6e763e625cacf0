//! HTTP/1.1 to plain addresses, such as a model server or a gateway on this machine.
//!
//! A connection has no task of its own: whoever reads an answer drives it. A delta then costs no switch between tasks,
//! and an answer nobody reads any more closes its connection at once.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use futures::task::AtomicWaker;
use http_body_util::Full;
use hyper::body::{Body as _, Frame, Incoming};
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper::header::{HOST, HeaderMap, HeaderValue};
use hyper::{Request, Response, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use reqwest::Url;
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id};
use tokio::time::Instant;
use tower_service::Service as _;

/// How long a connection is kept that nobody uses.
const IDLE_TIME: Duration = Duration::from_secs(90);

/// Unused connections kept per address.
const MAX_IDLE: usize = 1024;

/// Whether an address is spoken to here: not over TLS, nor with a password in the address, nor by way of a proxy.
pub(super) fn serves(url: &Url) -> bool {
    static PROXIED: OnceLock<bool> = OnceLock::new();
    let proxied = || {
        ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"]
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
    };
    url.scheme() == "http" && url.username().is_empty() && url.password().is_none() && !*PROXIED.get_or_init(proxied)
}

/// Why an answer did not come, or not to its end.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkError {
    #[error("the address cannot be used: {0}")]
    Address(#[from] hyper::http::Error),
    #[error("cannot connect: {0}")]
    Connect(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Http(#[from] hyper::Error),
}

/// Posts a body and waits for the head of the answer. Dropping the future closes the connection.
pub(super) async fn post(
    url: &Url,
    headers: &HeaderMap,
    body: Bytes,
    connect_timeout: Duration,
) -> Result<Response<LinkBody>, LinkError> {
    // There is no user in it: see `serves`.
    let authority = url.authority().to_owned();
    let target = match url.query() {
        Some(query) => Uri::try_from(format!("{}?{query}", url.path())),
        None => Uri::try_from(url.path()),
    };
    let target = target.map_err(hyper::http::Error::from)?;
    let host = HeaderValue::from_str(&authority).map_err(hyper::http::Error::from)?;
    let place = Place { runtime: Handle::current().id(), authority };
    let mut fresh = false;
    // Ends: every round takes a connection off the shelf, or makes one.
    loop {
        let shelved = if fresh { None } else { take(&place) };
        let (mut link, kept) = match shelved {
            Some(link) => (link, true),
            None => (connect(&place.authority, connect_timeout).await?, false),
        };
        let mut request = Request::new(Full::new(body.clone()));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = target.clone();
        request.headers_mut().clone_from(headers);
        request.headers_mut().entry(HOST).or_insert_with(|| host.clone());
        let sent = link.sender.try_send_request(request);
        match link.drive(sent).await {
            Ok(response) => {
                let (head, incoming) = response.into_parts();
                return Ok(Response::from_parts(head, LinkBody { incoming, link: Some(link), place: Some(place) }));
            }
            Err(failed) => {
                // A server may close a connection that it thinks idle at the very moment it is used again; what came
                // too late for it is sent once more, on a connection that is new.
                let error = failed.into_error();
                let too_late =
                    error.is_incomplete_message() || error.is_canceled() || error.is_closed() || is_reset(&error);
                if !(kept && too_late) {
                    return Err(error.into());
                }
                fresh = true;
            }
        }
    }
}

fn is_reset(error: &hyper::Error) -> bool {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected};
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<std::io::Error>());
    cause.is_some_and(|cause| matches!(cause.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | NotConnected))
}

/// One connection.
struct Link {
    sender: SendRequest<Full<Bytes>>,
    connection: Connection<TokioIo<TcpStream>, Full<Bytes>>,
    bell: Arc<Bell>,
    waker: Waker,
    /// The connection came to its end and must not be polled again.
    ended: bool,
}

impl Link {
    fn poll_connection(&mut self, cx: &mut Context<'_>) {
        if !self.ended {
            self.bell.reader.register(cx.waker());
            // What goes wrong reaches the request or the body.
            self.ended = Pin::new(&mut self.connection).poll(&mut Context::from_waker(&self.waker)).is_ready();
        }
    }

    /// Waits for something that only the connection brings.
    async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        poll_fn(|cx| {
            self.poll_connection(cx);
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Whether another request can go over it.
    fn is_ready(&mut self) -> bool {
        self.poll_connection(&mut Context::from_waker(Waker::noop()));
        !self.ended && self.sender.is_ready()
    }
}

/// Wakes the reader for the connection. Silent while the reader takes what the connection brought: the connection would
/// ring for the room that makes, and the reader is at it anyway.
#[derive(Default)]
struct Bell {
    reader: AtomicWaker,
    muted: AtomicBool,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.muted.load(Ordering::Acquire) {
            self.reader.wake();
        }
    }
}

async fn connect(authority: &str, timeout: Duration) -> Result<Box<Link>, LinkError> {
    let address = Uri::builder().scheme("http").authority(authority).path_and_query("/").build()?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(timeout));
    let io = connector.call(address).await.map_err(|error| LinkError::Connect(error.into()))?;
    let (sender, connection) = http1::handshake(io).await?;
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
    let mut link = Box::new(Link { sender, connection, waker, bell, ended: false });
    poll_fn(|cx| {
        link.poll_connection(cx);
        link.sender.poll_ready(cx)
    })
    .await?;
    Ok(link)
}

/// The body of an answer. Read to its end it leaves the connection to the next request; dropped before, it closes it.
pub(super) struct LinkBody {
    incoming: Incoming,
    link: Option<Box<Link>>,
    place: Option<Place>,
}

impl LinkBody {
    /// What has arrived. Never waits by itself: who finds nothing drives the connection.
    fn poll_frame(&mut self) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(link) = &self.link {
            link.bell.muted.store(true, Ordering::Release);
        }
        let frame = Pin::new(&mut self.incoming).poll_frame(&mut Context::from_waker(Waker::noop()));
        if let Some(link) = &self.link {
            link.bell.muted.store(false, Ordering::Release);
        }
        frame
    }
}

impl Stream for LinkBody {
    type Item = Result<Bytes, LinkError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        let mut driven = false;
        loop {
            match this.poll_frame() {
                Poll::Ready(Some(Ok(frame))) => {
                    if let Ok(data) = frame.into_data() {
                        return Poll::Ready(Some(Ok(data)));
                    }
                    driven = false;
                }
                Poll::Ready(Some(Err(error))) => {
                    this.link = None;
                    return Poll::Ready(Some(Err(error.into())));
                }
                Poll::Ready(None) => {
                    if let (Some(link), Some(place)) = (this.link.take(), this.place.take()) {
                        keep(place, link);
                    }
                    return Poll::Ready(None);
                }
                Poll::Pending => {
                    let Some(link) = this.link.as_mut().filter(|_| !driven) else { return Poll::Pending };
                    link.poll_connection(cx);
                    driven = true;
                }
            }
        }
    }
}

/// Connections are bound to the runtime that made them.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Place {
    runtime: Id,
    authority: String,
}

/// Connections that nobody uses.
type Shelf = HashMap<Place, Vec<(Box<Link>, Instant)>>;

fn shelf() -> MutexGuard<'static, Shelf> {
    static SHELF: OnceLock<Mutex<Shelf>> = OnceLock::new();
    SHELF.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// The connection used last that is still good.
fn take(place: &Place) -> Option<Box<Link>> {
    loop {
        let (mut link, since) = shelf().get_mut(place)?.pop()?;
        if since.elapsed() < IDLE_TIME && link.is_ready() {
            return Some(link);
        }
    }
}

/// Puts a connection back. Whether it is still good is looked at when it is taken.
fn keep(place: Place, link: Box<Link>) {
    if link.ended {
        return;
    }
    // It would keep the task of the last reader.
    drop(link.bell.reader.take());
    let Ok(runtime) = Handle::try_current() else { return };
    let kept = (link, Instant::now());
    let mut shelf = shelf();
    match shelf.get_mut(&place) {
        Some(links) if links.len() < MAX_IDLE => links.push(kept),
        Some(_) => {
            drop(shelf);
            drop(kept);
        }
        None => {
            shelf.insert(place.clone(), vec![kept]);
            drop(shelf);
            let mut keeper = Keeper { place, done: false };
            runtime.spawn(async move {
                while keeper.tidy() {
                    tokio::time::sleep(IDLE_TIME / 2).await;
                }
            });
        }
    }
}

/// Looks after the unused connections of a place while there are any, and ends with the runtime at the latest.
struct Keeper {
    place: Place,
    done: bool,
}

impl Keeper {
    /// Closes what has waited too long or was closed by the other side. Whether anything is left.
    fn tidy(&mut self) -> bool {
        let taken = shelf().get_mut(&self.place).map(std::mem::take);
        let mut links = taken.unwrap_or_default();
        links.retain_mut(|(link, since)| since.elapsed() < IDLE_TIME && link.is_ready());
        let mut shelf = shelf();
        if let Some(place) = shelf.get_mut(&self.place) {
            // Younger ones may have come meanwhile, and are to be taken first.
            links.append(place);
            *place = links;
            if !place.is_empty() {
                return true;
            }
            shelf.remove(&self.place);
        }
        self.done = true;
        false
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if !self.done {
            let links = shelf().remove(&self.place);
            drop(links);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    async fn listen() -> (TcpListener, Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}/v1/x?y=z", listener.local_addr().unwrap())).unwrap();
        (listener, url)
    }

    async fn request(socket: &mut TcpStream) -> String {
        let mut request = Vec::new();
        while !request.ends_with(b"{}") {
            assert!(socket.read_buf(&mut request).await.unwrap() > 0, "the connection ended");
        }
        String::from_utf8(request).unwrap()
    }

    async fn ask(url: &Url) -> Result<String, LinkError> {
        let response = post(url, &HeaderMap::new(), Bytes::from_static(b"{}"), TIMEOUT).await?;
        let mut body = response.into_body();
        let mut text = String::new();
        while let Some(chunk) = body.next().await {
            text.push_str(std::str::from_utf8(&chunk?).unwrap());
        }
        Ok(text)
    }

    #[tokio::test]
    async fn a_connection_serves_one_request_after_the_other() {
        let (listener, url) = listen().await;
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            for _ in 0..3 {
                let seen = request(&mut socket).await;
                assert!(
                    seen.starts_with("POST /v1/x?y=z HTTP/1.1\r\n") && seen.contains("content-length: 2"),
                    "{seen}"
                );
                assert!(seen.contains("host: 127.0.0.1:"), "{seen}");
                let head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
                socket.write_all(head).await.unwrap();
                for chunk in ["2\r\nab\r\n1\r\nc\r", "\n3\r\ndef\r\n", "0\r\n\r\n"] {
                    socket.write_all(chunk.as_bytes()).await.unwrap();
                    tokio::task::yield_now().await;
                }
            }
        });
        for _ in 0..3 {
            assert_eq!(ask(&url).await.unwrap(), "abcdef");
        }
        server.await.unwrap();
    }

    #[tokio::test]
    async fn what_the_server_closed_is_not_used_again() {
        let (listener, url) = listen().await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let (closed, is_closed) = tokio::sync::oneshot::channel();
        let server = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            request(&mut first).await;
            first.write_all(answer).await.unwrap();
            first.shutdown().await.unwrap();
            assert_eq!(first.read(&mut [0; 8]).await.unwrap(), 0, "closed on the other side too");
            closed.send(()).unwrap();
            let (mut second, _) = listener.accept().await.unwrap();
            request(&mut second).await;
            second.write_all(answer).await.unwrap();
            second
        });
        assert_eq!(ask(&url).await.unwrap(), "ok");
        // Only who uses the connection, or looks after it, sees that it was closed.
        let place = Place { runtime: Handle::current().id(), authority: url.authority().to_owned() };
        let mut keeper = Keeper { place, done: true };
        while keeper.tidy() {
            tokio::task::yield_now().await;
        }
        is_closed.await.unwrap();
        assert_eq!(ask(&url).await.unwrap(), "ok");
        server.await.unwrap();
    }

    #[tokio::test]
    async fn what_the_server_closes_as_it_is_used_is_sent_again_on_a_new_connection() {
        let (listener, url) = listen().await;
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let server = tokio::spawn(async move {
            let (mut first, _) = listener.accept().await.unwrap();
            request(&mut first).await;
            first.write_all(answer).await.unwrap();
            // Taken for idle, although the next request is on its way.
            request(&mut first).await;
            drop(first);
            let (mut second, _) = listener.accept().await.unwrap();
            request(&mut second).await;
            second.write_all(answer).await.unwrap();
            // One that never served anybody is not tried again.
            let (mut third, _) = listener.accept().await.unwrap();
            request(&mut third).await;
            drop(third);
            drop(second);
            assert!(tokio::time::timeout(Duration::from_millis(50), listener.accept()).await.is_err());
        });
        assert_eq!(ask(&url).await.unwrap(), "ok");
        assert_eq!(ask(&url).await.unwrap(), "ok");
        let place = Place { runtime: Handle::current().id(), authority: url.authority().to_owned() };
        let second = take(&place).unwrap();
        assert!(matches!(ask(&url).await, Err(LinkError::Http(_))));
        drop(second);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn an_answer_that_is_dropped_closes_its_connection() {
        let (listener, url) = listen().await;
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            request(&mut socket).await;
            socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf").await.unwrap();
            assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0);
        });
        let response = post(&url, &HeaderMap::new(), Bytes::from_static(b"{}"), TIMEOUT).await.unwrap();
        let mut body = response.into_body();
        assert_eq!(&body.next().await.unwrap().unwrap()[..], b"half");
        drop(body);
        server.await.unwrap();
    }

    #[tokio::test]
    async fn a_server_that_closes_without_an_answer_is_an_error() {
        let (listener, url) = listen().await;
        let server = tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            request(&mut socket).await;
        });
        assert!(matches!(ask(&url).await, Err(LinkError::Http(_))));
        server.await.unwrap();
    }

    #[test]
    fn connections_end_with_their_runtime() {
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (server, first, second) = (runtime(), runtime(), runtime());
        let (listener, url) = server.block_on(listen());
        let accepted = server.spawn(async move {
            for _ in 0..2 {
                let (mut socket, _) = listener.accept().await.unwrap();
                request(&mut socket).await;
                socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
                assert_eq!(socket.read(&mut [0; 8]).await.unwrap_or(0), 0);
            }
        });
        let serving = std::thread::spawn(move || server.block_on(accepted).unwrap());
        assert_eq!(first.block_on(ask(&url)).unwrap(), "ok");
        drop(first);
        assert_eq!(second.block_on(ask(&url)).unwrap(), "ok");
        drop(second);
        serving.join().unwrap();
        assert!(!shelf().keys().any(|place| place.authority == url.authority()));
    }

    #[test]
    fn passwords_and_tls_are_for_others() {
        let of = |url: &str| serves(&Url::parse(url).unwrap());
        assert!(!of("https://127.0.0.1/") && !of("http://user:pass@127.0.0.1/") && !of("http://user@127.0.0.1/"));
    }
}
