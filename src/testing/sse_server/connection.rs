use std::io;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::reply::{HttpEnd, HttpFraming, HttpReply, Step};
use super::{HttpReplyState, ReceivedRequest, Shared};

const MAX_HEAD: usize = 64 * 1024;
const MAX_BODY: usize = 64 * 1024 * 1024;

/// Serves requests on one connection until one side closes it.
pub(super) async fn serve(mut stream: TcpStream, number: usize, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let mut buffer = BytesMut::new();
    while let Ok(Some(request)) = read_request(&mut stream, &mut buffer, number).await {
        let (index, reply) = shared.accept(request);
        let Some(index) = index else {
            let _ = stream.write_all(reply.head().as_bytes()).await;
            return;
        };
        let result = write_reply(&mut stream, &mut buffer, &reply).await;
        shared.settle(index, if result.is_ok() { HttpReplyState::Sent } else { HttpReplyState::ClientLeft });
        if result.is_err() || reply.closes() || reply.end != HttpEnd::Complete {
            if reply.end == HttpEnd::Reset {
                reset(&stream);
            } else {
                let _ = stream.shutdown().await;
            }
            return;
        }
    }
}

/// Closing with unread or unsent bytes resets; a zero linger makes it certain.
fn reset(stream: &TcpStream) {
    let _ = stream.set_zero_linger();
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut BytesMut,
    connection: usize,
) -> io::Result<Option<ReceivedRequest>> {
    let Some(head) = read_head(stream, buffer).await? else { return Ok(None) };
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next().unwrap_or_default().split(' ');
    let method = first.next().unwrap_or_default().to_owned();
    let path = first.next().unwrap_or_default().to_owned();
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let mut request = ReceivedRequest { method, path, headers, body: Bytes::new(), connection };
    if request.header("expect").is_some_and(|value| value.eq_ignore_ascii_case("100-continue")) {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    request.body = if request.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        read_chunked(stream, buffer).await?
    } else {
        let length = match request.header("content-length") {
            Some(text) => text.parse().map_err(|_| invalid("content-length"))?,
            None => 0,
        };
        read_exact(stream, buffer, length).await?
    };
    Ok(Some(request))
}

async fn read_head(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Option<Bytes>> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n\r\n") {
            let head = buffer.split_to(end).freeze();
            buffer.advance(4);
            return Ok(Some(head));
        }
        if buffer.len() > MAX_HEAD {
            return Err(invalid("head too large"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

async fn read_exact(stream: &mut TcpStream, buffer: &mut BytesMut, length: usize) -> io::Result<Bytes> {
    if length > MAX_BODY {
        return Err(invalid("body too large"));
    }
    while buffer.len() < length {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(buffer.split_to(length).freeze())
}

async fn read_chunked(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<Bytes> {
    let mut body = BytesMut::new();
    loop {
        let line = read_line(stream, buffer).await?;
        let size = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(size, 16).map_err(|_| invalid("chunk size"))?;
        if size == 0 {
            while !read_line(stream, buffer).await?.is_empty() {}
            return Ok(body.freeze());
        }
        let chunk = read_exact(stream, buffer, size).await?;
        if body.len().saturating_add(chunk.len()) > MAX_BODY {
            return Err(invalid("body too large"));
        }
        body.extend_from_slice(&chunk);
        read_line(stream, buffer).await?;
    }
}

async fn read_line(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<String> {
    loop {
        if let Some(end) = memchr::memmem::find(buffer, b"\r\n") {
            let line = buffer.split_to(end);
            buffer.advance(2);
            return Ok(String::from_utf8_lossy(&line).into_owned());
        }
        if buffer.len() > MAX_HEAD {
            return Err(invalid("line too long"));
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// An error means that the client left before the reply's end.
async fn write_reply(stream: &mut TcpStream, buffer: &mut BytesMut, reply: &HttpReply) -> io::Result<()> {
    for step in &reply.before_head {
        run_step(stream, buffer, step, HttpFraming::CloseDelimited).await?;
    }
    stream.write_all(reply.head().as_bytes()).await?;
    for step in &reply.body {
        run_step(stream, buffer, step, reply.framing).await?;
    }
    match reply.end {
        HttpEnd::Complete | HttpEnd::Close if reply.framing == HttpFraming::Chunked => {
            stream.write_all(b"0\r\n\r\n").await?;
        }
        HttpEnd::Stall => client_left(stream, buffer).await?,
        _ => {}
    }
    stream.flush().await
}

async fn run_step(stream: &mut TcpStream, buffer: &mut BytesMut, step: &Step, framing: HttpFraming) -> io::Result<()> {
    match step {
        // An empty HTTP chunk would end the body.
        Step::Send(bytes) if bytes.is_empty() => Ok(()),
        Step::Send(bytes) if framing == HttpFraming::Chunked => {
            let mut chunk = BytesMut::with_capacity(bytes.len().saturating_add(20));
            chunk.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
            chunk.extend_from_slice(bytes);
            chunk.extend_from_slice(b"\r\n");
            stream.write_all(&chunk).await?;
            stream.flush().await
        }
        Step::Send(bytes) => {
            stream.write_all(bytes).await?;
            stream.flush().await
        }
        Step::Delay(time) => unless_left(stream, buffer, tokio::time::sleep(*time)).await,
        Step::Hold(gate) => unless_left(stream, buffer, gate.wait()).await,
    }
}

async fn unless_left(stream: &mut TcpStream, buffer: &mut BytesMut, wait: impl Future<Output = ()>) -> io::Result<()> {
    tokio::select! {
        biased;
        result = client_left(stream, buffer) => result,
        () = wait => Ok(()),
    }
}

/// Resolves, to an error, when the client closes its side. What it sends meanwhile is kept for the next request.
async fn client_left(stream: &mut TcpStream, buffer: &mut BytesMut) -> io::Result<()> {
    while buffer.len() <= MAX_HEAD {
        if stream.read_buf(buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    std::future::pending().await
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
