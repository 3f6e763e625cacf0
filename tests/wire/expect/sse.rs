//! Server-sent events of a whole body.

use serde_json::Value;

#[derive(Debug, PartialEq)]
pub struct Event {
    pub name: String,
    pub data: Data,
}

#[derive(Debug, PartialEq)]
pub enum Data {
    Json(Value),
    Done,
    /// A field `error:`, which no specification knows.
    ErrorField(Value),
    /// What could not be read, e.g. because the body was cut inside it.
    Broken,
}

pub fn events(body: &str) -> Vec<Event> {
    // In the recordings a lone CR does not occur, so that unifying line ends is safe.
    let body = body.trim_start_matches(['\u{feff}', ' ', '\n', '\r']).replace("\r\n", "\n").replace('\r', "\n");
    body.split("\n\n").filter_map(event).collect()
}

fn event(block: &str) -> Option<Event> {
    // Google reports failures by JSON that stands in the stream without a field.
    if let (true, Ok(json)) = (block.trim_start().starts_with('{'), serde_json::from_str(block)) {
        return Some(Event { name: String::new(), data: Data::Json(json) });
    }
    let mut name = String::new();
    let mut data: Option<String> = None;
    let mut error = None;
    for line in block.lines() {
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => match &mut data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => data = Some(value.to_owned()),
            },
            "error" => error = serde_json::from_str(value).ok(),
            _ => {}
        }
    }
    if let Some(error) = error {
        return Some(Event { name, data: Data::ErrorField(error) });
    }
    let data = data?;
    let data = match serde_json::from_str(&data) {
        Ok(json) => Data::Json(json),
        Err(_) if data.trim() == "[DONE]" => Data::Done,
        Err(_) => Data::Broken,
    };
    Some(Event { name, data })
}

#[test]
fn reads_what_a_stream_can_hold() {
    let body =
        ": hi\r\n\r\nevent: a\r\ndata: {\"a\":\r\ndata: 1}\r\n\r\ndata: [DONE]\n\nerror: {\"b\":2}\n\ndata: {\"c";
    let expected = [
        Event { name: "a".into(), data: Data::Json(serde_json::json!({ "a": 1 })) },
        Event { name: String::new(), data: Data::Done },
        Event { name: String::new(), data: Data::ErrorField(serde_json::json!({ "b": 2 })) },
        Event { name: String::new(), data: Data::Broken },
    ];
    assert_eq!(events(body), expected);
}
