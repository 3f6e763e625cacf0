//! What probabilities say of an answer that the server left out. Servers compute confidence in several ways; these are
//! the formulas that TypeSafe documents.

use crate::decision::check::index;

/// The option that is most probable; of equals the first.
pub(super) fn most_probable(probabilities: &[f64]) -> Option<usize> {
    let mut best: Option<(usize, f64)> = None;
    for (place, probability) in probabilities.iter().enumerate() {
        if best.is_none_or(|(_, highest)| *probability > highest) {
            best = Some((place, *probability));
        }
    }
    best.map(|(place, _)| place)
}

/// The mean of the levels' numbers.
pub(super) fn mean(probabilities: &[f64]) -> f64 {
    probabilities.iter().enumerate().map(|(level, probability)| index(level) * probability).sum()
}

/// Confidence of a choice: 0 when all options are alike, 1 when one is certain.
pub(super) fn choice_confidence(probabilities: &[f64]) -> Option<f64> {
    let count = index(probabilities.len());
    let highest = *probabilities.get(most_probable(probabilities)?)?;
    (count > 1.0).then(|| ((count * highest - 1.0) / (count - 1.0)).clamp(0.0, 1.0))
}

/// Confidence of a score: 1 less the spread around the most probable level, as a share of the spread around the middle when
/// all levels are alike.
pub(super) fn score_confidence(probabilities: &[f64]) -> Option<f64> {
    let mode = index(most_probable(probabilities)?);
    let middle = index(probabilities.len().saturating_sub(1)) / 2.0;
    let own: f64 = probabilities.iter().enumerate().map(|(level, p)| p * (index(level) - mode).abs()).sum();
    let alike: f64 =
        (0..probabilities.len()).map(|level| (index(level) - middle).abs()).sum::<f64>() / index(probabilities.len());
    (alike > 0.0).then(|| (1.0 - own / alike).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn confidence_is_nothing_when_all_are_alike_and_one_when_certain() {
        let near = |got: Option<f64>, expected: f64| assert!((got.unwrap() - expected).abs() < 1e-9, "{got:?}");
        near(choice_confidence(&[0.25; 4]), 0.0);
        near(choice_confidence(&[0.0, 1.0]), 1.0);
        near(choice_confidence(&[0.95, 0.05]), 0.9);
        near(score_confidence(&[0.0, 0.0, 1.0]), 1.0);
        // The reference's example.
        near(score_confidence(&[0.1, 0.6, 0.3]), 0.4);
        assert_eq!(choice_confidence(&[]), None);
        assert_eq!((most_probable(&[0.2, 0.4, 0.4]), mean(&[0.1, 0.6, 0.3])), (Some(1), 1.2));
    }
}
