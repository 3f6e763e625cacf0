//! Whether answers fit their questions.

use super::{Answer, Question, QuestionAnswer, QuestionKind};

/// How far a rounded probability may lie outside of 0 to 1.
const SLACK: f64 = 1e-3;

/// Puts the answers in the order of the questions, if there is exactly one fit answer to each and no other.
///
/// # Errors
/// What does not fit, naming the question.
pub(crate) fn check_answers(
    questions: &[Question],
    answers: Vec<QuestionAnswer>,
) -> Result<Vec<QuestionAnswer>, String> {
    let mut places: Vec<Option<QuestionAnswer>> = questions.iter().map(|_| None).collect();
    let by_id: std::collections::HashMap<&str, usize> =
        questions.iter().enumerate().map(|(index, question)| (question.id.as_str(), index)).collect();
    for answer in answers {
        let place = by_id.get(answer.id.as_str()).and_then(|index| places.get_mut(*index));
        let Some(place) = place else {
            return Err(format!("there is an answer to {:?}, which was not asked", answer.id));
        };
        if place.is_some() {
            return Err(format!("question {:?} has two answers", answer.id));
        }
        *place = Some(answer);
    }
    let mut ordered = Vec::with_capacity(questions.len());
    for (question, answer) in questions.iter().zip(places) {
        let Some(mut answer) = answer else { return Err(format!("question {:?} has no answer", question.id)) };
        check(question, &mut answer.answer).map_err(|fault| format!("question {:?}: {fault}", question.id))?;
        ordered.push(answer);
    }
    Ok(ordered)
}

fn check(question: &Question, answer: &mut Answer) -> Result<(), String> {
    match (&question.kind, answer) {
        (_, Answer::Refused) => Ok(()),
        (QuestionKind::Bool { .. }, Answer::Bool { probability, .. }) => {
            probability.as_mut().map_or(Ok(()), |probability| fit("probability", probability))
        }
        (QuestionKind::Choice { options }, Answer::Choice { value, confidence, probabilities }) => {
            let is_option = |value: &str| options.iter().any(|option| option.value == value);
            if !is_option(value) {
                return Err(format!("{value:?} is none of its options"));
            }
            confidence.as_mut().map_or(Ok(()), |confidence| fit("confidence", confidence))?;
            if probabilities.is_empty() {
                return Ok(());
            }
            if let Some((other, _)) = probabilities.iter().find(|(value, _)| !is_option(value)) {
                return Err(format!("it has a probability of {other:?}, which is none of its options"));
            }
            let mut ordered = Vec::with_capacity(options.len());
            for option in options {
                let mut of_option = probabilities.iter().filter(|(value, _)| *value == option.value);
                let (Some((_, mut probability)), None) = (of_option.next().cloned(), of_option.next()) else {
                    return Err(format!("there is not exactly one probability of {:?}", option.value));
                };
                fit("probability", &mut probability)?;
                ordered.push((option.value.clone(), probability));
            }
            *probabilities = ordered;
            Ok(())
        }
        (QuestionKind::Score { levels }, Answer::Score { value, confidence, probabilities }) => {
            let highest = index(levels.len().saturating_sub(1));
            if !(-SLACK..=highest + SLACK).contains(value) {
                return Err(format!("its score is {value}, and 0 to {highest} is what there is"));
            }
            *value = value.clamp(0.0, highest);
            confidence.as_mut().map_or(Ok(()), |confidence| fit("confidence", confidence))?;
            if !probabilities.is_empty() && probabilities.len() != levels.len() {
                return Err(format!("it has {} probabilities for {} levels", probabilities.len(), levels.len()));
            }
            probabilities.iter_mut().try_for_each(|probability| fit("probability", probability))
        }
        (kind, _) => Err(format!("it is a {}, and the answer is of another kind", kind.as_str())),
    }
}

/// Not a number fits nowhere; what rounding has put outside is put back.
fn fit(what: &str, number: &mut f64) -> Result<(), String> {
    if !(-SLACK..=1.0 + SLACK).contains(number) {
        return Err(format!("its {what} is {number}, and 0 to 1 is what there is"));
    }
    *number = number.clamp(0.0, 1.0);
    Ok(())
}

/// The number of a level. There are never so many that it would not be exact.
pub(crate) fn index(level: usize) -> f64 {
    u32::try_from(level).map_or(f64::from(u32::MAX), f64::from)
}
