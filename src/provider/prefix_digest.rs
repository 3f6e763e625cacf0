/// What an API binds reasoning to, rolled into a digest as it is encoded: the same pieces in the same order give the
/// same one, in every process and version. Reasoning itself is not part of it, or leaving some out would void all that
/// follows.
///
/// It tells that something changed, and is no defence against somebody who wants it not to: they would only have their
/// own request refused. So it is a multiply and a fold per 16 bytes, and costs next to nothing beside the encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PrefixDigest {
    low: u64,
    high: u64,
}

/// Digits of the square roots of 2, 3, 5 and 7.
const KEYS: [u64; 4] = [0x6a09_e667_f3bc_c908, 0xbb67_ae85_84ca_a73b, 0x3c6e_f372_fe94_f82b, 0xa54f_f53a_5f1d_36f1];

impl PrefixDigest {
    pub(crate) const fn new() -> Self {
        Self { low: KEYS[2], high: KEYS[3] }
    }

    /// Adds the next piece. Two pieces are not the same as one of both.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<16>();
        for block in blocks {
            self.mix(u128::from_le_bytes(*block));
        }
        let mut last = [0; 16];
        for (to, from) in last.iter_mut().zip(rest) {
            *to = *from;
        }
        self.mix(u128::from_le_bytes(last));
        self.mix(u128::try_from(bytes.len()).unwrap_or_default());
    }

    fn mix(&mut self, block: u128) {
        let (first, second) = halves(block);
        let (low, high) = halves(product(first ^ self.low ^ KEYS[0], second ^ self.high ^ KEYS[1]));
        self.low = low ^ self.high.rotate_left(29);
        self.high = high ^ first.wrapping_add(second.rotate_left(31));
    }

    /// Whether a stored text is of this one.
    pub(crate) fn is(self, stored: &str) -> bool {
        stored.len() == 32
            && u128::from_str_radix(stored, 16).is_ok_and(|stored| halves(stored) == (self.low, self.high))
    }
}

fn product(a: u64, b: u64) -> u128 {
    u128::from(a).wrapping_mul(u128::from(b))
}

/// The lower and the upper 64 bits.
fn halves(number: u128) -> (u64, u64) {
    let low = u64::try_from(number & u128::from(u64::MAX)).unwrap_or_default();
    (low, u64::try_from(number >> 64).unwrap_or_default())
}

impl std::fmt::Display for PrefixDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.high, self.low)
    }
}

/// What is known of the reasoning in a body that was encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Of all that was encoded.
    pub(crate) digest: PrefixDigest,
    /// Turns from the start whose reasoning is left out, since what it was bound to is not what is sent.
    pub(crate) dropped: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn of(pieces: &[&[u8]]) -> PrefixDigest {
        let mut digest = PrefixDigest::new();
        pieces.iter().for_each(|piece| digest.add(piece));
        digest
    }

    #[test]
    fn every_change_is_another_digest() {
        let text = b"a text of more than sixteen bytes, and of more than thirty-two";
        let mut seen = HashSet::from([of(&[text]).to_string(), of(&[]).to_string()]);
        for at in 0..text.len() {
            for bit in 0..8 {
                let mut changed = *text;
                changed[at] ^= 1 << bit;
                assert!(seen.insert(of(&[&changed]).to_string()), "bit {bit} of byte {at}");
            }
            assert!(seen.insert(of(&[&text[..at]]).to_string()), "cut at {at}");
            assert!(seen.insert(of(&[&text[..at], &text[at..]]).to_string()), "in two at {at}");
        }
        for zeros in 1..100 {
            assert!(seen.insert(of(&[&vec![0; zeros]]).to_string()), "{zeros} zeros");
        }
        assert!(seen.insert(of(&[b"a", b"b"]).to_string()) && seen.insert(of(&[b"b", b"a"]).to_string()));
    }

    #[test]
    fn it_is_what_sessions_have_stored() {
        let digest = of(&[b"You are kind.", b"[]", b"{\"role\":\"user\",\"content\":[", b"{\"type\":\"text\"}"]);
        assert_eq!(digest.to_string(), "6803053d2cad278f6c100305ac9c001a");
        assert!(digest.is(&digest.to_string()));
        for other in ["", "0", "zz", "+0000000000000000000000000000000"] {
            assert!(!digest.is(other));
        }
    }
}
