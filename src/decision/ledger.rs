use std::sync::{Arc, Mutex, PoisonError};

use crate::types::DecisionUsage;

/// Entries that are kept apart; beyond, what comes is added to the last one of the same model.
const KEPT: usize = 256;

/// What decisions have used that no run has filed yet. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct DecisionLedger(Arc<Mutex<Vec<DecisionUsage>>>);

impl DecisionLedger {
    /// Takes entries over.
    pub(crate) fn add(&self, usage: &[DecisionUsage]) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for entry in usage {
            let full = waiting.len() >= KEPT;
            match waiting.iter_mut().rfind(|earlier| full && is_of_same(earlier, entry)) {
                Some(earlier) => {
                    earlier.tokens += entry.tokens;
                    if let Some(cost) = entry.cost {
                        *earlier.cost.get_or_insert_default() += cost;
                    }
                }
                None => waiting.push(entry.clone()),
            }
        }
    }

    /// What has come in, and forgets it.
    pub(crate) fn take(&self) -> Vec<DecisionUsage> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn is_of_same(one: &DecisionUsage, other: &DecisionUsage) -> bool {
    one.provider == other.provider
        && one.requested_model == other.requested_model
        && one.model_id == other.model_id
        && one.cost.is_some() == other.cost.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{NanoUsd, TokenUsage};

    #[test]
    fn it_does_not_grow_and_loses_nothing() {
        let ledger = DecisionLedger::default();
        let entry = DecisionUsage {
            tokens: TokenUsage { input: 3, ..TokenUsage::default() },
            cost: Some(NanoUsd(2)),
            provider: "p".into(),
            ..DecisionUsage::default()
        };
        for _ in 0..1000 {
            ledger.add(std::slice::from_ref(&entry));
        }
        let taken = ledger.take();
        assert_eq!(taken.len(), KEPT);
        assert_eq!(taken.iter().map(|entry| entry.tokens.input).sum::<u64>(), 3000);
        assert_eq!(taken.iter().filter_map(|entry| entry.cost).sum::<NanoUsd>(), NanoUsd(2000));
        assert!(ledger.take().is_empty());
    }
}
