//! The bound on a body's silence.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt as _};
use tokio::time::{Instant, Sleep};

use super::http::Origin;
use super::{ProviderError, ProviderErrorKind, ReaderAway};

/// A body whose silence is bounded. The clock runs only while somebody waits, and one timer serves the whole body.
pub(super) struct IdleBody<S> {
    inner: S,
    idle: Duration,
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whom the timer wakes already, so that it need not be asked at every chunk.
    sleeper: Option<Waker>,
    /// Since when this body is asked for more, where no reader tells that itself.
    waiting: Option<Instant>,
    reader_away: Option<Arc<ReaderAway>>,
    origin: Origin,
}

/// How long somebody has waited for the next bytes. A reader's wait is never older than the last bytes: it begins anew
/// whenever those came to nothing.
fn silence(reader: Option<&ReaderAway>, since: Option<Instant>) -> Duration {
    match (reader, since) {
        (Some(reader), _) => reader.waiting(),
        (None, Some(since)) => since.elapsed(),
        (None, None) => Duration::ZERO,
    }
}

impl<S> IdleBody<S> {
    /// `reader_away`, where a reader tells itself when it waits.
    pub(super) fn new(inner: S, idle: Duration, reader_away: Option<Arc<ReaderAway>>, origin: Origin) -> Self {
        Self { inner, idle, sleep: None, sleeper: None, waiting: None, reader_away, origin }
    }
}

impl<S: Stream<Item = Result<Bytes, ProviderError>> + Unpin> Stream for IdleBody<S> {
    type Item = Result<Bytes, ProviderError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        if let Poll::Ready(item) = this.inner.poll_next_unpin(cx) {
            this.waiting = None;
            return Poll::Ready(item);
        }
        if this.reader_away.is_none() {
            this.waiting.get_or_insert_with(Instant::now);
        }
        loop {
            let sleep = this.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(this.idle)));
            let waits = this.sleeper.as_ref().is_some_and(|waker| waker.will_wake(cx.waker()));
            if waits && !sleep.is_elapsed() {
                return Poll::Pending;
            }
            if sleep.as_mut().poll(cx).is_pending() {
                this.sleeper = Some(cx.waker().clone());
                return Poll::Pending;
            }
            this.sleeper = None;
            let silence = silence(this.reader_away.as_deref(), this.waiting);
            let left = this.idle.saturating_sub(silence);
            if left.is_zero() {
                this.sleep = None;
                let message = format!("the response was silent for {:?}", this.idle);
                return Poll::Ready(Some(Err(this.origin.error(ProviderErrorKind::Timeout, message))));
            }
            sleep.as_mut().reset(Instant::now() + left);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::{self, BoxStream};

    use super::*;

    type Inner = BoxStream<'static, Result<Bytes, ProviderError>>;

    fn body(inner: Inner, away: Option<Arc<ReaderAway>>) -> IdleBody<Inner> {
        IdleBody::new(inner, Duration::from_secs(10), away, Origin::new("test", []))
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_bounded_and_every_byte_starts_it_anew() {
        let ticks = stream::unfold(0u32, |count| async move {
            let wait = if count < 20 { 9 } else { 1000 };
            tokio::time::sleep(Duration::from_secs(wait)).await;
            Some((Ok(Bytes::from_static(b".")), count + 1))
        });
        let started = Instant::now();
        let items: Vec<_> = body(ticks.boxed(), None).take(21).collect().await;
        assert_eq!(items.iter().filter(|item| item.is_ok()).count(), 20);
        assert_eq!(items[20].as_ref().unwrap_err().kind, ProviderErrorKind::Timeout);
        assert_eq!(started.elapsed().as_secs(), 20 * 9 + 10);
    }

    #[tokio::test(start_paused = true)]
    async fn time_that_the_reader_was_away_is_not_silence() {
        let away = Arc::new(ReaderAway::default());
        let mut body = body(stream::pending().boxed(), Some(Arc::clone(&away)));
        assert!(futures::poll!(body.next()).is_pending());
        away.left();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(futures::poll!(body.next()).is_pending(), "the reader is only just back");
        away.waits();
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(futures::poll!(body.next()).is_pending());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(matches!(futures::poll!(body.next()), Poll::Ready(Some(Err(_)))));
    }
}
