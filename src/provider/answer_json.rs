//! The JSON that a model's answer holds, with what models put around it.

use serde_json::Value;

/// The one JSON value of an answer: the whole text, what stands in its one fence, or its one object.
pub(crate) fn json_of(text: &str) -> Result<Value, String> {
    let text = text.trim();
    let whole = match serde_json::from_str(text) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if let Some(fenced) = fenced(text) {
        return serde_json::from_str(fenced.trim()).map_err(|error| format!("The answer is not valid JSON: {error}."));
    }
    let mut found = objects(text);
    match (found.next(), found.next()) {
        (Some(value), None) => Ok(value),
        (Some(_), Some(_)) => Err("The answer holds more than one JSON object.".to_owned()),
        _ => Err(format!("The answer is not valid JSON: {whole}.")),
    }
}

/// What stands in the only fence of a text.
fn fenced(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once("```")?;
    let (inside, after) = rest.split_once("```")?;
    if after.contains("```") {
        return None;
    }
    let (info, body) = inside.split_once('\n')?;
    info.trim().bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(body)
}

/// The JSON objects that stand in a text, one after the other.
fn objects(text: &str) -> impl Iterator<Item = Value> {
    let mut rest = text;
    // A text of braces alone must not cost a parse each.
    let mut tries = 64_u32;
    std::iter::from_fn(move || {
        loop {
            rest = rest.get(rest.find('{')?..)?;
            tries = tries.checked_sub(1)?;
            let mut stream = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
            match stream.next() {
                Some(Ok(value)) => {
                    rest = rest.get(stream.byte_offset()..)?;
                    return Some(value);
                }
                _ => rest = rest.get(1..)?,
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_value_is_found_and_two_are_not_guessed_between() {
        let ok = |text: &str| json_of(text).unwrap()["a"].as_i64();
        assert_eq!(ok("{\"a\": 1}"), Some(1));
        assert_eq!(ok("Here you are:\n```json\n{\"a\": 1}\n```\nAnything else?"), Some(1));
        assert_eq!(ok("The answer {is} {\"a\": {\"b\": \"}\"}, \"c\": 1} as asked."), None);
        assert_eq!(json_of("So: {\"a\": 1} or {\"a\": 2}").unwrap_err(), "The answer holds more than one JSON object.");
        assert!(json_of("no").is_err());
        assert!(json_of(&"{".repeat(100_000)).is_err());
    }
}
