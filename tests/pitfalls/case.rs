//! A case as it is stored.

use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Case {
    pub id: String,
    pub title: String,
    pub form: String,
    pub json: Value,
}

impl Case {
    pub fn new(json: Value, file: &str) -> Self {
        let text = |key: &str| json[key].as_str().map(str::to_owned);
        Self {
            id: text("id").unwrap_or_else(|| file.to_owned()),
            title: text("title").unwrap_or_default(),
            form: text("case").unwrap_or_default(),
            json,
        }
    }
}
