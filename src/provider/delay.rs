//! Delays as error bodies write them.

use std::time::Duration;

use serde_json::{Map, Value};

/// The delay that an error text asks for: `try again in 1.5s`, `retry in 20ms`, `Resets in 6hr 29min`.
pub(crate) fn delay_hint(message: &str) -> Option<Duration> {
    let text = message.to_lowercase();
    ["try again in ", "retry in ", "retry after ", "resets in ", "reset in "].iter().find_map(|lead| {
        let (_, rest) = text.split_once(lead)?;
        parse_delay(rest)
    })
}

/// One or more numbers with units, from the beginning of `text`. A bare number is seconds.
pub(crate) fn parse_delay(text: &str) -> Option<Duration> {
    let mut rest = text.trim_start();
    let mut total = None;
    loop {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let Ok(number) = number.trim_end_matches('.').parse::<f64>() else { break };
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let seconds = match unit {
            "ms" | "millisecond" | "milliseconds" => number / 1000.0,
            "" | "s" | "sec" | "secs" | "second" | "seconds" => number,
            "m" | "min" | "mins" | "minute" | "minutes" => number * 60.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => number * 3600.0,
            "d" | "day" | "days" => number * 86_400.0,
            _ => break,
        };
        let part = Duration::try_from_secs_f64(seconds).ok()?;
        total = Some(total.unwrap_or(Duration::ZERO).saturating_add(part));
        rest = after.trim_start();
    }
    total
}

/// The delay of a `google.rpc.RetryInfo` among an error's details.
pub(crate) fn retry_info(error: &Map<String, Value>) -> Option<Duration> {
    let details = error.get("details")?.as_array()?;
    let delay = details.iter().find_map(|detail| detail.get("retryDelay"))?.as_str()?;
    parse_delay(delay)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_in_words() {
        assert_eq!(delay_hint("Resets in 6hr 29min."), Some(Duration::from_secs(6 * 3600 + 29 * 60)));
        assert_eq!(delay_hint("please retry in 20ms"), Some(Duration::from_millis(20)));
        assert_eq!(delay_hint("try again in 3 seconds"), Some(Duration::from_secs(3)));
        assert_eq!(delay_hint("retry shortly"), None);
        assert_eq!(delay_hint("try again in 99999999999999999999999999d"), None);
    }
}
