//! Answers as servers give them: what one leaves out is computed where the probabilities allow.

use serde_json::Value;

use super::distribution::{choice_confidence, mean, most_probable, score_confidence};
use crate::decision::{Answer, ChoiceOption};

/// The fields of an answer.
#[derive(Clone, Copy)]
pub(super) struct Fields<'a>(pub(super) &'a Value);

impl<'a> Fields<'a> {
    pub(super) fn text(self, name: &str) -> Option<&'a str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// A number; null is none.
    pub(super) fn number(self, name: &str) -> Result<Option<f64>, String> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value.as_f64().map(Some).ok_or_else(|| format!("its {name} is no number")),
        }
    }

    /// Probabilities by value, whether they come as an object or as a list; null is none.
    fn probabilities(self) -> Result<Vec<(String, f64)>, String> {
        let number = |value: Option<&Value>| {
            value.and_then(Value::as_f64).ok_or_else(|| "one of its probabilities is no number".to_owned())
        };
        match self.0.get("probabilities") {
            None | Some(Value::Null) => Ok(Vec::new()),
            Some(Value::Object(map)) => {
                map.iter().map(|(value, probability)| Ok((value.clone(), number(Some(probability))?))).collect()
            }
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| {
                    let value = item.get("value").and_then(word).ok_or("one of its probabilities has no value")?;
                    Ok((value, number(item.get("probability"))?))
                })
                .collect(),
            Some(_) => Err("its probabilities are neither an object nor a list".to_owned()),
        }
    }
}

/// A value as text: options may be booleans, levels are numbers.
fn word(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(value) => Some(value.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

pub(super) fn choice(options: &[ChoiceOption], fields: Fields<'_>) -> Result<Answer, String> {
    let probabilities = fields.probabilities()?;
    let numbers: Vec<f64> = probabilities.iter().map(|(_, probability)| *probability).collect();
    let given = fields.0.get("choice").and_then(word);
    let value = match given.or_else(|| Some(probabilities.get(most_probable(&numbers)?)?.0.clone())) {
        Some(value) => value,
        None => return Err("the answer has neither a choice nor probabilities".to_owned()),
    };
    let complete = numbers.len() == options.len();
    let confidence = fields.number("confidence")?.or_else(|| choice_confidence(&numbers).filter(|_| complete));
    Ok(Answer::Choice { value, confidence, probabilities })
}

pub(super) fn score(levels: &[String], fields: Fields<'_>) -> Result<Answer, String> {
    let given = fields.probabilities()?;
    let mut probabilities = vec![None; if given.is_empty() { 0 } else { levels.len() }];
    for (level, probability) in given {
        let place = level.parse::<usize>().ok().or_else(|| levels.iter().position(|label| *label == level));
        match place.and_then(|place| probabilities.get_mut(place)) {
            Some(slot @ None) => *slot = Some(probability),
            Some(Some(_)) => return Err(format!("it has two probabilities of level {level:?}")),
            None => return Err(format!("it has a probability of level {level:?}, which is none")),
        }
    }
    let probabilities: Option<Vec<f64>> = probabilities.into_iter().collect();
    let probabilities = probabilities.ok_or("a level has no probability")?;
    let known = !probabilities.is_empty();
    let value = match fields.number("score")? {
        Some(value) => value,
        None if known => mean(&probabilities),
        None => return Err("the answer has neither a score nor probabilities".to_owned()),
    };
    let confidence = fields.number("confidence")?.or_else(|| score_confidence(&probabilities));
    Ok(Answer::Score { value, confidence, probabilities })
}
