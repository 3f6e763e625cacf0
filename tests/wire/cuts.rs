//! The same body in other network reads.

use bytes::Bytes;

/// A small seeded generator (xorshift), so that a failure can be repeated.
pub struct Random(u64);

impl Random {
    pub fn of(name: &str, salt: u64) -> Self {
        let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64 ^ salt, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed | 1)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(limit.max(1)).unwrap()).unwrap()
    }
}

pub fn bytewise(body: &Bytes) -> Vec<Bytes> {
    (0..body.len()).map(|at| body.slice(at..=at)).collect()
}

/// Mostly small pieces with large ones between, so that both an event in many reads and many events in one occur.
pub fn random(body: &Bytes, random: &mut Random) -> Vec<Bytes> {
    let mut rest = body.clone();
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let longest = if random.below(4) == 0 { 5_000 } else { 60 };
        let size = 1 + random.below(longest.min(rest.len()));
        pieces.push(rest.split_to(size));
    }
    pieces
}
