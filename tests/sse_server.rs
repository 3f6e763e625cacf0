//! The loopback server does to the byte what its script says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use zidane::testing::{Gate, HttpEnd, HttpFraming, HttpReply, HttpReplyState, SseServer};

const GET: &[u8] = b"GET /v1?a=b HTTP/1.1\r\nHost: x\r\n\r\n";

async fn connect(server: &SseServer) -> TcpStream {
    TcpStream::connect(server.address()).await.unwrap()
}

async fn ask(stream: &mut TcpStream) {
    stream.write_all(GET).await.unwrap();
}

async fn read_all(stream: &mut TcpStream) -> Result<String, std::io::Error> {
    let mut text = Vec::new();
    stream.read_to_end(&mut text).await?;
    Ok(String::from_utf8(text).unwrap())
}

async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let byte = stream.read_u8().await.expect("the connection is open");
        text.push(byte);
    }
    String::from_utf8(text).unwrap()
}

#[tokio::test]
async fn every_body_chunk_is_one_http_chunk() {
    let reply = HttpReply::new(200).header("x-a", "b\r\nevil: c").chunk("ab").chunk("").chunk("c").end(HttpEnd::Close);
    let server = SseServer::start([reply]).await.unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    let expected = "HTTP/1.1 200 OK\r\nx-a: b  evil: c\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n\
                    2\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    assert_eq!(read_all(&mut stream).await.unwrap(), expected);
    assert_eq!(server.wait_for_reply(0).await, HttpReplyState::Sent);
}

#[tokio::test]
async fn a_length_or_the_close_can_frame_the_body() {
    let server = SseServer::start([
        HttpReply::json(418, "{}"),
        HttpReply::new(200).cut_every("abc", 2).framing(HttpFraming::CloseDelimited),
    ])
    .await
    .unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    let expected = "HTTP/1.1 418 Client Error\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
    assert_eq!(read_until(&mut stream, "{}").await, expected);
    ask(&mut stream).await;
    assert_eq!(read_all(&mut stream).await.unwrap(), "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nabc");
    let connections: Vec<_> = server.requests().iter().map(|request| request.connection).collect();
    assert_eq!(connections, [0, 0], "the connection was kept");
}

#[tokio::test]
async fn a_cut_body_lacks_its_end() {
    let length = HttpReply::json(200, "{").end(HttpEnd::Cut);
    let server = SseServer::start([HttpReply::sse("data: a").end(HttpEnd::Cut), length]).await.unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    assert!(read_all(&mut stream).await.unwrap().ends_with("\r\n\r\n7\r\ndata: a\r\n"));
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    assert!(read_all(&mut stream).await.unwrap().ends_with("content-length: 2\r\n\r\n{"));
}

#[tokio::test]
async fn a_reset_is_a_reset() {
    let server = SseServer::start([HttpReply::sse("data: a\n").end(HttpEnd::Reset)]).await.unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    let error = read_all(&mut stream).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn requests_are_recorded_as_sent() {
    let server = SseServer::start([HttpReply::new(200), HttpReply::new(200)]).await.unwrap();
    let mut stream = connect(&server).await;
    stream.write_all(b"POST /a HTTP/1.1\r\nX-Key: 1\r\nContent-Length: 7\r\n\r\n{\"a\":1}").await.unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    let chunked = b"POST /b HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\n\r\n";
    stream.write_all(chunked).await.unwrap();
    read_until(&mut stream, "0\r\n\r\n").await;
    let requests = server.requests();
    assert_eq!(requests[0].method, "POST");
    assert_eq!(requests[0].path, "/a");
    assert_eq!(requests[0].header("X-KEY"), Some("1"));
    assert_eq!(requests[0].json().unwrap(), serde_json::json!({ "a": 1 }));
    assert_eq!(requests[1].body, "abc");
    assert_eq!((server.unserved(), server.unexpected()), (0, 0));
}

#[tokio::test]
async fn a_request_too_many_is_told_and_counted() {
    let server = SseServer::start([]).await.unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    assert!(read_until(&mut stream, "}}").await.starts_with("HTTP/1.1 501 "));
    assert_eq!(server.unexpected(), 1);
    server.push(HttpReply::new(204));
    ask(&mut stream).await;
    assert!(read_until(&mut stream, "0\r\n\r\n").await.starts_with("HTTP/1.1 204 "));
}

#[tokio::test]
async fn a_gate_holds_the_reply_and_a_leaving_client_is_noticed() {
    let gate = Gate::new();
    let held = HttpReply::sse("data: a\n\n").hold(&gate).chunk("data: b\n\n");
    let stalled = HttpReply::sse("data: a\n\n").end(HttpEnd::Stall);
    let delayed = HttpReply::sse("data: a\n\n").delay(Duration::from_secs(3600));
    let server = SseServer::start([held, stalled, delayed]).await.unwrap();

    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    read_until(&mut stream, "data: a\n\n\r\n").await;
    assert_eq!(server.replies(), [HttpReplyState::Sending]);
    gate.open();
    read_until(&mut stream, "0\r\n\r\n").await;
    assert_eq!(server.wait_for_reply(0).await, HttpReplyState::Sent);

    for index in [1, 2] {
        ask(&mut stream).await;
        read_until(&mut stream, "data: a\n\n\r\n").await;
        assert_eq!(server.open_connections(), 1);
        drop(stream);
        assert_eq!(server.wait_for_reply(index).await, HttpReplyState::ClientLeft);
        server.wait_for_connections(0).await;
        stream = connect(&server).await;
    }
}

#[tokio::test]
async fn a_handler_answers_by_request() {
    let server = SseServer::with_handler(|request| HttpReply::json(200, request.path.clone())).await.unwrap();
    let mut stream = connect(&server).await;
    ask(&mut stream).await;
    assert!(read_until(&mut stream, "/v1?a=b").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(server.wait_for_request(1).await.path, "/v1?a=b");
}

#[tokio::test]
async fn dropping_the_server_closes_everything() {
    let server = SseServer::start([HttpReply::sse("data: a\n\n").end(HttpEnd::Stall)]).await.unwrap();
    let mut stream = connect(&server).await;
    let mut idle = connect(&server).await;
    ask(&mut stream).await;
    read_until(&mut stream, "data: a\n\n\r\n").await;
    let address = server.address();
    drop(server);
    assert!(read_all(&mut stream).await.is_ok_and(|rest| rest.is_empty()));
    assert!(read_all(&mut idle).await.map_or(true, |rest| rest.is_empty()));
    assert!(TcpStream::connect(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn nonsense_closes_the_connection() {
    let server = SseServer::start([]).await.unwrap();
    let long = [b"GET / HTTP/1.1\r\nA: ".to_vec(), vec![b'a'; 200_000]].concat();
    for bytes in [
        &b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"[..],
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        &long,
    ] {
        let mut stream = connect(&server).await;
        // The server may close before it has read everything.
        let _ = stream.write_all(bytes).await;
        let mut sink = Vec::new();
        let _ = stream.read_to_end(&mut sink).await;
        assert!(sink.is_empty());
    }
    server.wait_for_connections(0).await;
    assert!(server.requests().is_empty());
}
