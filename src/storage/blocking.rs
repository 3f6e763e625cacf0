use super::StorageError;

/// Does work that blocks on a thread made for that. Dropping the future does not stop work that has begun.
pub(crate) async fn blocking<T, E>(place: &str, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<StorageError> + Send + 'static,
{
    let closed = |message: String| StorageError::Closed { place: place.to_owned(), message };
    let runtime = tokio::runtime::Handle::try_current().map_err(|error| closed(error.to_string()))?;
    match runtime.spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => Err(closed(error.to_string()).into()),
    }
}
