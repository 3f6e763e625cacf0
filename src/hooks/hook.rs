use std::error::Error;

use futures::future::BoxFuture;

/// An error of a handler.
pub type BoxError = Box<dyn Error + Send + Sync>;

/// An event of the bus: a marker type with a name, a class, and the context its handlers get.
///
/// Sealed: events are the crate's.
pub trait Hook: sealed::Sealed + Send + Sync + 'static {
    /// The name, e.g. `tool:gate`.
    const NAME: &'static str;
    /// What it may change, and what happens when a handler fails.
    const CLASS: Class;
    #[doc(hidden)]
    const SLOT: usize;
    /// What handlers see.
    type Cx<'a>: Send;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// What an event is for, and so what a failing handler does. A handler fails by returning an error, by panicking, or
/// by running out of its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Class {
    /// Decides whether a call runs. A failing handler blocks the call.
    Gate,
    /// Changes what is sent. A failing handler ends the run with an error before anything is sent.
    Shape,
    /// Changes a result. A failing handler turns it into an error result, so that nothing raw leaks.
    Transform,
    /// Watches. A failing handler is logged and told to `hook:error`; the run goes on.
    Observe,
}

/// How long and how far a handler is registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scope {
    /// Until the current run ends; between runs, until the next one ends.
    Run,
    /// As long as the agent lives. The default of all but gates.
    Agent,
    /// As `Agent`, and for every agent spawned below. The default of gates.
    Tree,
}

/// What a handler may return: nothing, or a `Result` whose error converts into a boxed one.
pub trait HookReturn {
    #[doc(hidden)]
    fn into_result(self) -> Result<(), BoxError>;
}

impl HookReturn for () {
    fn into_result(self) -> Result<(), BoxError> {
        Ok(())
    }
}

impl<E: Into<BoxError>> HookReturn for Result<(), E> {
    fn into_result(self) -> Result<(), BoxError> {
        self.map_err(Into::into)
    }
}

// The never type, spelled through a function pointer, so that `|_| todo!()` is a handler.
impl HookReturn for <fn() -> ! as never::Output>::Type {
    fn into_result(self) -> Result<(), BoxError> {
        self
    }
}

mod never {
    pub trait Output {
        type Type;
    }
    impl<T> Output for fn() -> T {
        type Type = T;
    }
}

/// A closure for [`Hooks::on`](super::Hooks::on).
#[diagnostic::on_unimplemented(
    message = "this closure is not a handler of `{H}`",
    note = "a handler is `Fn(&mut Cx) -> ()` or `-> Result<(), E>`, and `Send + Sync + 'static`"
)]
pub trait SyncHandler<H: Hook>:
    for<'a, 'c> Fn(&'c mut H::Cx<'a>) -> <Self as SyncHandler<H>>::Out + Send + Sync + 'static
{
    #[doc(hidden)]
    type Out: HookReturn;
}

impl<H, F, R> SyncHandler<H> for F
where
    H: Hook,
    F: for<'a, 'c> Fn(&'c mut H::Cx<'a>) -> R + Send + Sync + 'static,
    R: HookReturn,
{
    type Out = R;
}

/// A closure for [`Hooks::on_async`](super::Hooks::on_async): it returns a boxed future that may borrow its context.
#[diagnostic::on_unimplemented(
    message = "this closure is not an async handler of `{H}`",
    note = "an async handler is `|cx| Box::pin(async move {{ .. }})`, and `Send + Sync + 'static`"
)]
pub trait AsyncHandler<H: Hook>:
    for<'a, 'c> Fn(&'c mut H::Cx<'a>) -> BoxFuture<'c, <Self as AsyncHandler<H>>::Out> + Send + Sync + 'static
{
    #[doc(hidden)]
    type Out: HookReturn;
}

impl<H, F, R> AsyncHandler<H> for F
where
    H: Hook,
    F: for<'a, 'c> Fn(&'c mut H::Cx<'a>) -> BoxFuture<'c, R> + Send + Sync + 'static,
    R: HookReturn,
{
    type Out = R;
}

type SyncFn<H> = Box<dyn for<'a, 'c> Fn(&'c mut <H as Hook>::Cx<'a>) -> Result<(), BoxError> + Send + Sync>;
type AsyncFn<H> =
    Box<dyn for<'a, 'c> Fn(&'c mut <H as Hook>::Cx<'a>) -> BoxFuture<'c, Result<(), BoxError>> + Send + Sync>;

pub(super) enum Handler<H: Hook> {
    Sync(SyncFn<H>),
    Async(AsyncFn<H>),
}

impl<H: Hook> Handler<H> {
    pub(super) fn sync(f: impl SyncHandler<H>) -> Self {
        Self::Sync(Box::new(move |cx| f(cx).into_result()))
    }

    pub(super) fn future(f: impl AsyncHandler<H>) -> Self {
        Self::Async(Box::new(move |cx| {
            let future = f(cx);
            Box::pin(async move { future.await.into_result() })
        }))
    }
}
