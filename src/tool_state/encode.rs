use serde_json::value::{RawValue, to_raw_value};

use super::ToolStateOp;
use crate::storage::{StorageError, check_depth};

/// The JSON that an op sets its key to; `None` for one that removes it.
///
/// # Errors
/// `TooDeep` for a value that could not be read again.
pub(super) fn encode_value(op: &ToolStateOp) -> Result<Option<Box<RawValue>>, StorageError> {
    let ToolStateOp::Set { key, value } = op else { return Ok(None) };
    let place = || format!("tool state key `{key}`");
    let json = to_raw_value(value).map_err(|error| StorageError::corrupt(place(), error))?;
    check_depth(json.get()).map_err(|limit| StorageError::TooDeep { place: place(), limit })?;
    Ok(Some(json))
}
