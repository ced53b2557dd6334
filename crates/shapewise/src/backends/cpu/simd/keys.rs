//! Vectors of unsigned keys, for sorting: what networks and partitions take, on instruction sets that can pack chosen lanes.

/// Vectors of keys on one instruction set. The token `self` proves that the instructions exist.
///
/// Lanes are chosen by bits, the first lane lowest.
pub trait KeyLanes<K: Copy>: Copy {
    /// One register of keys.
    type V: Copy;
    /// Keys in a register.
    const LANES: usize;

    /// Every lane `key`.
    fn splat(self, key: K) -> Self::V;
    /// Reads `LANES` keys, any alignment.
    ///
    /// # Safety
    /// `at` is valid for reading `LANES` keys.
    unsafe fn load(self, at: *const K) -> Self::V;
    /// Reads the first `n` keys; the other lanes are those of `rest`. From `LANES` on all are read.
    ///
    /// # Safety
    /// `at` is valid for reading `n` keys.
    unsafe fn load_first(self, at: *const K, n: usize, rest: Self::V) -> Self::V;
    /// Writes `LANES` keys, any alignment.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` keys.
    unsafe fn store(self, at: *mut K, v: Self::V);
    /// Writes the first `n` keys. From `LANES` on all are written.
    ///
    /// # Safety
    /// `at` is valid for writing `n` keys.
    unsafe fn store_first(self, at: *mut K, v: Self::V, n: usize);
    /// Writes `LANES` keys past the caches; call [`fence`](KeyLanes::fence) after the last.
    ///
    /// # Safety
    /// `at` is valid for writing `LANES` keys and aligned to the size of a register.
    unsafe fn stream(self, at: *mut K, v: Self::V);
    /// Makes streamed keys visible to other threads before anything written later.
    fn fence(self);
    /// The first lane.
    fn first(self, v: Self::V) -> K;

    /// The lanes in which `a < b`.
    fn below(self, a: Self::V, b: Self::V) -> u32;
    /// The chosen lanes side by side from the first on; the others are zero.
    fn pack(self, v: Self::V, lanes: u32) -> Self::V;
    /// The smaller and the larger of each lane.
    fn sort(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
    /// The larger of the chosen lanes and the smaller of the others.
    fn choose(self, a: Self::V, b: Self::V, larger: u32) -> Self::V;
    /// Lane `i` of the result is lane `i ^ with`, which is 1, 2, 3, 4, 7 or, of sixteen lanes, 15.
    fn exchange(self, v: Self::V, with: usize) -> Self::V;
    /// The lanes of both in turn: those of the first halves, then those of the second.
    fn interleave(self, a: Self::V, b: Self::V) -> (Self::V, Self::V);
}

/// An algorithm over vectors of keys, started by [`LaneKey::run`].
pub trait KeyTask<K: Copy>: Sized {
    /// What it computes.
    type Output;
    /// The algorithm; mark it `#[inline(always)]`, and all it calls.
    fn run<S: KeyLanes<K>>(self, s: S) -> Self::Output;

    /// Runs it compiled for AVX-512.
    ///
    /// # Safety
    /// The CPU has what the token stands for.
    #[cfg(target_arch = "x86_64")]
    #[doc(hidden)]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,fma,f16c")]
    unsafe fn run_avx512(self, s: super::Avx512) -> Self::Output
    where
        super::Avx512: KeyLanes<K>,
    {
        self.run(s)
    }
}

/// A key that comes in vectors.
pub trait LaneKey: Copy + Ord + Send + Sync + 'static {
    /// The largest.
    const LAST: Self;
    /// Runs the algorithm, or returns `None` where no instruction set for it is available.
    fn run<T: KeyTask<Self>>(task: T) -> Option<T::Output>;
}

macro_rules! lane_keys {
    ($($k:ident)*) => {$(
        impl LaneKey for $k {
            const LAST: Self = $k::MAX;

            #[inline]
            fn run<T: KeyTask<Self>>(task: T) -> Option<T::Output> {
                #[cfg(target_arch = "x86_64")]
                if super::Isa::Avx512.is_available() {
                    // SAFETY: the instructions are available.
                    return Some(unsafe { task.run_avx512(super::Avx512::new_unchecked()) });
                }
                let _ = task;
                None
            }
        }
    )*};
}
lane_keys!(u32 u64);

#[cfg(test)]
mod tests {
    use super::*;

    /// Every operation against scalar code, on lanes that go wrong when signs or places are taken for others.
    struct Every<K>([K; 16], [K; 16]);

    impl<K: LaneKey + std::fmt::Debug> KeyTask<K> for Every<K> {
        type Output = ();

        fn run<S: KeyLanes<K>>(self, s: S) {
            let (Self(a, b), n) = (self, S::LANES);
            let all = |v: S::V| {
                let mut lanes = [K::LAST; 16];
                // SAFETY: the array has room for a register.
                unsafe { s.store(lanes.as_mut_ptr(), v) };
                lanes[..n].to_vec()
            };
            // SAFETY: both arrays hold a register's keys.
            let (va, vb) = unsafe { (s.load(a.as_ptr()), s.load(b.as_ptr())) };
            assert_eq!((all(va), s.first(va)), (a[..n].to_vec(), a[0]));
            assert_eq!(all(s.splat(b[3])), vec![b[3]; n]);
            let (small, large) = s.sort(va, vb);
            let below = s.below(va, vb);
            for i in 0..n {
                assert_eq!((all(small)[i], all(large)[i]), (a[i].min(b[i]), a[i].max(b[i])));
                assert_eq!(below >> i & 1 == 1, a[i] < b[i]);
            }
            for lanes in [0u32, 1, 0b1010_0110_1100_0101, 0xff, 0xffff] {
                let chosen = |i: &usize| lanes >> i & 1 == 1;
                let packed: Vec<K> = (0..n).filter(chosen).map(|i| a[i]).collect();
                assert_eq!(all(s.pack(va, lanes))[..packed.len()], packed);
                let wanted: Vec<K> =
                    (0..n).map(|i| if chosen(&i) { a[i].max(b[i]) } else { a[i].min(b[i]) }).collect();
                assert_eq!(all(s.choose(va, vb, lanes)), wanted);
            }
            for with in [1, 2, 3, 4, 7, n - 1] {
                let wanted: Vec<K> = (0..n).map(|i| a[i ^ with]).collect();
                assert_eq!(all(s.exchange(va, with)), wanted, "{with}");
            }
            let (low, high) = s.interleave(va, vb);
            let wanted: Vec<K> = (0..n).flat_map(|i| [a[i], b[i]]).collect();
            assert_eq!([all(low), all(high)].concat(), wanted);
            for some in 0..=n {
                // SAFETY: both arrays hold a register's keys.
                let first = unsafe { s.load_first(a.as_ptr(), some, vb) };
                assert_eq!(all(first), [&a[..some], &b[some..n]].concat());
                let mut lanes = b;
                // SAFETY: the array has room for a register.
                unsafe { s.store_first(lanes.as_mut_ptr(), va, some) };
                assert_eq!(lanes[..n], all(first));
            }
        }
    }

    #[test]
    fn every_operation_is_that_of_scalars() {
        let random = |i: u64| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        for round in 0..64 {
            let key = |i: usize| match (random(round) >> i) & 3 {
                0 => u64::MAX >> (i % 3),
                1 => i as u64 & 3,
                _ => random(round * 100 + i as u64),
            };
            let (a, b): ([u64; 16], [u64; 16]) =
                (std::array::from_fn(key), std::array::from_fn(|i| key(i + 16)));
            u64::run(Every(a, b));
            u32::run(Every(a.map(|key| key as u32), b.map(|key| key as u32)));
        }
    }
}
