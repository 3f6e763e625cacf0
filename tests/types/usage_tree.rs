use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use zidane::types::*;

use super::generate::{self, Step};

/// The entries of a tree, collected the plain recursive way.
#[derive(Default)]
struct Naive {
    turns: Vec<TurnUsage>,
    decisions: Vec<DecisionUsage>,
}

fn naive(steps: &[Step]) -> Naive {
    let mut all = Naive::default();
    for step in steps {
        match step {
            Step::Turn(usage) => all.turns.push(usage.clone()),
            Step::Decision(usage) => all.decisions.push(usage.clone()),
            Step::Child(..) => {}
        }
    }
    for step in steps {
        if let Step::Child(_, steps) = step {
            let below = naive(steps);
            all.turns.extend(below.turns);
            all.decisions.extend(below.decisions);
        }
    }
    all
}

fn cap(sum: u128) -> u64 {
    u64::try_from(sum).unwrap_or(u64::MAX)
}

fn naive_sum(all: &Naive, turn: fn(&TurnUsage) -> u64, decision: fn(&DecisionUsage) -> u64) -> u64 {
    let turns = all.turns.iter().map(|usage| u128::from(turn(usage)));
    cap(turns.chain(all.decisions.iter().map(|usage| u128::from(decision(usage)))).sum())
}

fn naive_totals(all: &Naive) -> Totals {
    Totals {
        input: naive_sum(all, |usage| usage.tokens.input, |usage| usage.tokens.input),
        output: naive_sum(all, |usage| usage.tokens.output, |usage| usage.tokens.output),
        cache_read: naive_sum(all, |usage| usage.tokens.cache_read, |usage| usage.tokens.cache_read),
        cache_write: naive_sum(all, |usage| usage.tokens.cache_write, |usage| usage.tokens.cache_write),
        cost: NanoUsd(naive_sum(all, |usage| usage.cost.map_or(0, |c| c.0), |usage| usage.cost.map_or(0, |c| c.0))),
        unpriced_turns: all.turns.iter().filter(|usage| usage.cost.is_none()).count() as u64,
    }
}

fn or_unknown(id: Option<&str>) -> String {
    match id {
        None | Some("") => "(unknown)".into(),
        Some(id) => id.into(),
    }
}

/// Groups with one pass per group.
fn naive_groups<K: Clone + PartialEq>(
    all: &Naive,
    turn_key: impl Fn(&TurnUsage) -> K,
    decision_key: impl Fn(&DecisionUsage) -> K,
) -> Vec<(K, ModelUsage)> {
    let mut keys = Vec::new();
    for key in all.turns.iter().map(&turn_key).chain(all.decisions.iter().map(&decision_key)) {
        if !keys.contains(&key) {
            keys.push(key);
        }
    }
    let group = |key: K| {
        let own = Naive {
            turns: all.turns.iter().filter(|usage| turn_key(usage) == key).cloned().collect(),
            decisions: all.decisions.iter().filter(|usage| decision_key(usage) == key).cloned().collect(),
        };
        let totals = naive_totals(&own);
        let mut costs = own.turns.iter().map(|usage| usage.cost).chain(own.decisions.iter().map(|usage| usage.cost));
        let mut reasoning =
            own.turns.iter().map(|u| u.tokens.reasoning).chain(own.decisions.iter().map(|u| u.tokens.reasoning));
        let usage = ModelUsage {
            tokens: TokenUsage {
                input: totals.input,
                output: totals.output,
                cache_read: totals.cache_read,
                cache_write: totals.cache_write,
                reasoning: reasoning
                    .any(|some| some.is_some())
                    .then(|| naive_sum(&own, |u| u.tokens.reasoning.unwrap_or(0), |u| u.tokens.reasoning.unwrap_or(0))),
            },
            cost: costs.any(|cost| cost.is_some()).then_some(totals.cost),
            unpriced_turns: totals.unpriced_turns,
            turns: own.turns.len() as u64,
        };
        (key, usage)
    };
    keys.into_iter().map(group).collect()
}

proptest! {
    #[test]
    fn walks_are_depth_first_in_completion_order(steps in generate::steps()) {
        let (stats, all) = (generate::tree(&steps), naive(&steps));
        prop_assert_eq!(walk_turns(&stats).cloned().collect::<Vec<_>>(), all.turns);
        prop_assert_eq!(walk_decisions(&stats).cloned().collect::<Vec<_>>(), all.decisions);
    }

    #[test]
    fn totals_are_the_fold_of_the_walks(steps in generate::steps()) {
        let stats = generate::tree(&steps);
        prop_assert_eq!(stats.totals(), fold_totals(&stats));
        prop_assert_eq!(stats.totals(), naive_totals(&naive(&steps)));
        let turns = steps.iter().filter(|step| matches!(step, Step::Turn(usage) if usage.kind == UsageKind::Turn));
        prop_assert_eq!(stats.turns as usize, turns.count());
    }

    #[test]
    fn rollups_match_the_naive_model(steps in generate::steps()) {
        let (stats, all) = (generate::tree(&steps), naive(&steps));
        prop_assert_eq!(
            stats_by_model(&stats),
            naive_groups(&all, |u| or_unknown(u.model_id.as_deref()), |u| or_unknown(u.model_id.as_deref()))
        );
        prop_assert_eq!(
            stats_by_provider_model(&stats),
            naive_groups(
                &all,
                |u| (or_unknown(Some(&u.provider)), or_unknown(u.model_id.as_deref())),
                |u| (or_unknown(Some(&u.provider)), or_unknown(u.model_id.as_deref())),
            )
        );
        prop_assert_eq!(
            stats_by_run(&stats),
            naive_groups(&all, |u| or_unknown(Some(&u.run_id)), |u| or_unknown(Some(&u.run_id)))
        );
        prop_assert_eq!(stats.by_model(), stats_by_model(&stats));
    }

    #[test]
    fn trees_come_back_from_their_stored_form(steps in generate::steps()) {
        let stats = generate::tree(&steps);
        let text = serde_json::to_string(&stats).unwrap();
        let back: AgentStats = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(&back, &stats);
        prop_assert_eq!(serde_json::to_string(&back).unwrap(), text);
    }

    #[test]
    fn recompute_repairs_any_totals(steps in generate::steps(), wrong in any::<u64>()) {
        let stats = generate::tree(&steps);
        let mut broken = stats.clone();
        broken.total_in = wrong;
        broken.turns = 77;
        for child in broken.children.iter_mut() {
            child.stats.total_cost = NanoUsd(wrong);
            child.stats.turns = 77;
            for child in child.stats.children.iter_mut() {
                child.stats.unpriced_turns = wrong;
            }
        }
        broken.recompute();
        prop_assert_eq!(broken, stats);
    }
}

proptest! {
    // Quadratic in the size of the tree.
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn clones_are_equal_and_any_change_is_seen(steps in generate::steps()) {
        let stats = generate::tree(&steps);
        let copy = stats.clone();
        prop_assert_eq!(&copy, &stats);
        let nodes = changes(&stats);
        for (place, changed) in nodes.into_iter().enumerate() {
            prop_assert_ne!(&changed, &stats, "change {}", place);
        }
    }
}

/// Copies of a tree with one thing changed in each.
fn changes(stats: &AgentStats) -> Vec<AgentStats> {
    let mut all = Vec::new();
    let mut paths = vec![vec![]];
    while let Some(path) = paths.pop() {
        for change in [
            |node: &mut AgentStats| node.total_in ^= 1,
            |node: &mut AgentStats| node.total_cost.0 ^= 1,
            |node: &mut AgentStats| node.turns ^= 1,
            |node: &mut AgentStats| node.elapsed += Duration::from_nanos(1),
            |node: &mut AgentStats| node.turn_usage.push(TurnUsage::default().into()),
            |node: &mut AgentStats| node.decisions.push(DecisionUsage::default()),
            |node: &mut AgentStats| node.children.push(ChildStats::default()),
        ] {
            let mut copy = stats.clone();
            change(at(&mut copy, &path));
            all.push(copy);
        }
        for place in 0..at(&mut stats.clone(), &path).children.len() {
            for change in [
                |child: &mut ChildStats| child.id.push('x'),
                |child: &mut ChildStats| child.call_id = Some("other".into()),
                |child: &mut ChildStats| child.task.push('x'),
                |child: &mut ChildStats| child.status = ChildStatus::Unknown,
            ] {
                let mut copy = stats.clone();
                change(&mut at(&mut copy, &path).children[place]);
                all.push(copy);
            }
            paths.push([path.as_slice(), &[place]].concat());
        }
    }
    all
}

fn at<'a>(stats: &'a mut AgentStats, path: &[usize]) -> &'a mut AgentStats {
    path.iter().fold(stats, |node, place| &mut node.children[*place].stats)
}

#[test]
fn the_same_nodes_in_another_shape_are_not_equal() {
    let child = |id: &str| ChildStats { id: id.into(), ..ChildStats::default() };
    let mut nested = AgentStats::default();
    let mut first = child("a");
    first.stats.push_child(child("b"));
    nested.push_child(first);
    let mut flat = AgentStats::default();
    flat.push_child(child("a"));
    flat.push_child(child("b"));
    assert_ne!(nested, flat);
}

#[test]
fn a_tree_100_000_deep_fits_a_small_stack() {
    const DEPTH: usize = 100_000;
    let work = || {
        let mut stats = AgentStats::default();
        for depth in 0..DEPTH {
            let mut parent = AgentStats::default();
            parent.push_turn(TurnUsage {
                tokens: TokenUsage { input: 1, ..TokenUsage::default() },
                model_id: Some("m".into()),
                ..TurnUsage::default()
            });
            parent.push_child(ChildStats { id: depth.to_string(), stats, ..ChildStats::default() });
            stats = parent;
        }
        assert_eq!(stats.total_in, DEPTH as u64);
        assert_eq!(walk_turns(&stats).count(), DEPTH);
        assert_eq!(stats.by_model().len(), 1);
        assert_eq!(fold_totals(&stats), stats.totals());
        let mut copy = stats.clone();
        assert!(copy == stats);
        copy.recompute();
        assert!(copy == stats);
        assert!(format!("{stats:?}").len() < 4_000);
        assert!(format!("{:?}", stats.children[0]).len() < 4_000);
        let text = serde_json::to_string(&stats).unwrap();
        let mut back: AgentStats = serde_json::from_str(&text).unwrap();
        assert!(back == stats);
        let child = back.children.clone().into_vec().pop().unwrap();
        assert_eq!(child.stats.totals().input, DEPTH as u64 - 1);
        back.children = Children::default();
        assert_ne!(back.totals(), fold_totals(&back));
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_wide_tree_is_linear() {
    let mut stats = AgentStats::default();
    for place in 0..100_000_u32 {
        let mut child = ChildStats::default();
        child.stats.push_turn(TurnUsage { model_id: Some(format!("m{place}")), ..TurnUsage::default() });
        stats.push_child(child);
    }
    assert_eq!(stats.by_model().len(), 100_000);
    assert_eq!(stats.unpriced_turns, 100_000);
    assert_eq!(stats.turns, 0, "turns of the children are not this loop's");
}

#[test]
fn a_parent_that_is_not_before_its_child_is_an_error() {
    let node = |parent: serde_json::Value| json!({"id": "c", "task": "", "status": "completed", "parent": parent});
    for (children, index) in [
        (vec![node(json!(0))], 0),
        (vec![node(json!(null)), node(json!(1))], 1),
        (vec![node(json!(1)), node(json!(0))], 0),
        (vec![node(json!(null)), node(json!(0)), node(json!(99))], 2),
        (vec![node(json!(u64::MAX))], 0),
    ] {
        let stored = json!({"children": children});
        let error = serde_json::from_value::<AgentStats>(stored).unwrap_err().to_string();
        assert!(error.contains(&format!("child {index} names")), "{error}");
    }
    for parent in [json!(-1), json!("0"), json!(0.5), json!([])] {
        assert!(serde_json::from_value::<AgentStats>(json!({"children": [node(parent)]})).is_err());
    }
    let nested = json!({"children": [{"id": "c", "task": "", "status": "completed", "children": []}]});
    let error = serde_json::from_value::<AgentStats>(nested).unwrap_err().to_string();
    assert!(error.contains("child 0 holds children"), "{error}");
    // Any order in which parents come first will do, and missing numbers are 0.
    let stored = json!({"children": [node(json!(null)), node(json!(null)), node(json!(0)), node(json!(1))]});
    let stats: AgentStats = serde_json::from_value(stored).unwrap();
    assert_eq!(stats.children.len(), 2);
    assert!(stats.children.iter().all(|child| child.stats.children.len() == 1));
}

#[test]
fn a_read_tree_keeps_its_totals_until_told() {
    let mut stats: AgentStats = serde_json::from_value(json!({"totalIn": 5, "turnUsage": [{"input": 3}]})).unwrap();
    assert_eq!(stats.total_in, 5);
    stats.recompute();
    assert_eq!((stats.total_in, stats.turns, stats.unpriced_turns), (3, 1, 1));
}

#[test]
fn side_requests_are_entries_but_no_turns() {
    let mut stats = AgentStats::default();
    for kind in [UsageKind::Turn, UsageKind::Vision, UsageKind::Compaction, UsageKind::Repair, UsageKind::Other] {
        stats.push_turn(TurnUsage { kind, model_id: Some("m".into()), ..TurnUsage::default() });
    }
    stats.push_decision(DecisionUsage { model_id: Some("m".into()), ..DecisionUsage::default() });
    assert_eq!(stats.turns, 1);
    assert_eq!(walk_turns(&stats).count(), 5);
    let rollup = stats.by_model();
    assert_eq!(rollup.len(), 1);
    assert_eq!((rollup[0].0.as_str(), rollup[0].1.turns), ("m", 5));
}

#[test]
fn a_rollup_prints_as_one_line() {
    let mut usage = ModelUsage {
        tokens: TokenUsage { input: 1234, output: 56, cache_read: 800, ..TokenUsage::default() },
        cost: Some(NanoUsd(12_345_678)),
        unpriced_turns: 0,
        turns: 3,
    };
    assert_eq!(usage.to_string(), "1,234 in, 56 out, 800 cache read, $0.0123, 3 turns");
    usage.tokens.cache_write = 1_000_000;
    usage.unpriced_turns = 2;
    assert_eq!(
        usage.to_string(),
        "1,234 in, 56 out, 800 cache read, 1,000,000 cache write, $0.0123, 3 turns (2 unpriced)"
    );
    let usage = ModelUsage { turns: 1, ..ModelUsage::default() };
    assert_eq!(usage.to_string(), "0 in, 0 out, 1 turn");
}

#[test]
fn money_prints_in_dollars() {
    for (nano, text) in [
        (0, "$0.0000"),
        (1, "$0.000000001"),
        (12_000, "$0.000012"),
        (99_999, "$0.000099999"),
        (100_000, "$0.0001"),
        (149_999, "$0.0001"),
        (150_000, "$0.0002"),
        (999_950_000, "$1.0000"),
        (1_234_567_891_234_567, "$1,234,567.8912"),
        (u64::MAX, "$18,446,744,073.7095"),
    ] {
        assert_eq!(NanoUsd(nano).to_string(), text);
    }
    assert_eq!(NanoUsd::from_usd(0.0123), NanoUsd(12_300_000));
    assert_eq!(NanoUsd::from_usd(f64::NAN), NanoUsd(0));
    assert_eq!(NanoUsd::from_usd(-1.0), NanoUsd(0));
    assert_eq!(NanoUsd::from_usd(f64::INFINITY), NanoUsd(u64::MAX));
}
