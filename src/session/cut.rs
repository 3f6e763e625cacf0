use super::value::holds_results;
use crate::types::{Role, SessionTurn, TurnFinishReason, TurnOrigin};

/// Where a conversation may be cut in two: places `i` such that nothing in `turns[i..]` needs `turns[..i]`.
///
/// No cut parts a call from its results, a paused answer from its continuation, or a text that the loop added from the
/// turn it speaks of. Neither end is a place: something is left on both sides. The rest may begin with the model's
/// turn; what stands in for the beginning, as a summary does, is the user's.
pub fn cut_points<'a>(turns: impl IntoIterator<Item = &'a SessionTurn>) -> impl Iterator<Item = usize> {
    let mut before: Option<&SessionTurn> = None;
    turns.into_iter().enumerate().filter_map(move |(place, turn)| {
        let parts = before.replace(turn).map(|before| may_part(before, turn));
        (parts == Some(true)).then_some(place)
    })
}

/// The first place at which a conversation may be cut so that the rest weighs `budget` at most; 0 when all of it does.
///
/// When no rest is light enough, the lightest there is. `weigh` gives a turn's weight in any unit, such as bytes or
/// estimated tokens; it is asked once per turn.
pub fn cut_for_budget<'a>(
    turns: impl IntoIterator<Item = &'a SessionTurn>,
    budget: u64,
    mut weigh: impl FnMut(&SessionTurn) -> u64,
) -> usize {
    let mut before: Option<&SessionTurn> = None;
    let weighed: Vec<(u64, bool)> = turns
        .into_iter()
        .map(|turn| (weigh(turn), before.replace(turn).is_some_and(|before| may_part(before, turn))))
        .collect();
    // Wide enough for any number of turns.
    let mut rest = weighed.iter().fold(0_u128, |sum, (weight, _)| sum.saturating_add(u128::from(*weight)));
    let mut best = 0;
    for (place, (weight, may_cut)) in weighed.into_iter().enumerate() {
        if may_cut {
            best = place;
        }
        if rest <= u128::from(budget) && (may_cut || place == 0) {
            return place;
        }
        rest = rest.saturating_sub(u128::from(weight));
    }
    best
}

fn may_part(before: &SessionTurn, after: &SessionTurn) -> bool {
    let calls = before.role == Role::Assistant && before.tool_calls().next().is_some();
    let paused = before.finish_reason == Some(TurnFinishReason::Pause);
    let speaks_of_it = matches!(after.origin, TurnOrigin::Budget | TurnOrigin::Pause | TurnOrigin::Continue);
    !(calls || paused || speaks_of_it || holds_results(after))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Extra, SessionContentBlock, ToolCallBlock, ToolResultBlock, ToolStatus, validate_transcript};

    /// `p` prompt, `a` answer, `c` call, `r` results, `n` nudge, `w` paused answer, `g` its continuation, `s` steering.
    fn turns(shape: &str) -> Vec<SessionTurn> {
        let turn = |(place, kind): (usize, char)| {
            let (role, origin) = match kind {
                'a' | 'c' | 'w' => (Role::Assistant, TurnOrigin::Model),
                'r' => (Role::User, TurnOrigin::Results),
                'n' => (Role::User, TurnOrigin::Budget),
                'g' => (Role::User, TurnOrigin::Pause),
                's' => (Role::User, TurnOrigin::Steering),
                _ => (Role::User, TurnOrigin::Prompt),
            };
            let block = match kind {
                'c' => SessionContentBlock::ToolCall(ToolCallBlock { id: "1".into(), ..ToolCallBlock::default() }),
                'r' => SessionContentBlock::ToolResult(ToolResultBlock {
                    call_id: "1".into(),
                    name: "x".into(),
                    input: None,
                    output: "y".into(),
                    is_error: false,
                    status: ToolStatus::Ok,
                    outcome: None,
                    structured: None,
                    extra: Extra::default(),
                }),
                _ => SessionContentBlock::text("t"),
            };
            let mut turn = SessionTurn::new(place.to_string(), role, origin, vec![block]);
            turn.finish_reason = (kind == 'w').then_some(TurnFinishReason::Pause);
            turn
        };
        shape.chars().enumerate().map(turn).collect()
    }

    #[test]
    fn pairs_pauses_and_remarks_stay_together() {
        for (shape, places) in [
            ("", vec![]),
            ("p", vec![]),
            ("pa", vec![1]),
            ("papa", vec![1, 2, 3]),
            ("pcrcra", vec![1, 3, 5]),
            ("pcrnap", vec![1, 4, 5]),
            ("pcrsa", vec![1, 3, 4]),
            ("pwga", vec![1, 3]),
            ("pwa", vec![1]),
            ("pcp", vec![1]),
        ] {
            assert_eq!(cut_points(&turns(shape)).collect::<Vec<_>>(), places, "{shape}");
        }
    }

    #[test]
    fn both_sides_of_every_cut_are_valid() {
        let turns = turns("pcrcrnwgcrspacra");
        validate_transcript(&turns).unwrap();
        let places: Vec<_> = cut_points(&turns).collect();
        assert!(places.len() > 5, "{places:?}");
        for place in places {
            validate_transcript(&turns[..place]).unwrap();
            validate_transcript(&turns[place..]).unwrap();
        }
    }

    #[test]
    fn the_longest_rest_within_the_budget_is_kept() {
        let turns = turns("pcrcra");
        let cut = |budget| cut_for_budget(&turns, budget, |_| 10);
        assert_eq!((cut(60), cut(59), cut(50), cut(49), cut(30), cut(29)), (0, 1, 1, 3, 3, 5));
        assert_eq!(cut(9), 5, "the lightest there is");
        assert_eq!(cut_for_budget(&[], 0, |_| u64::MAX), 0);
        assert_eq!(cut_for_budget(&turns, u64::MAX, |_| u64::MAX), 5, "weights do not wrap around");
    }
}
