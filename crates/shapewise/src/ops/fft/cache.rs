//! What was planned, kept for the next call.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// Tables that are kept at once; the oldest go first.
const MOST: usize = 64;

/// A few values by key: readers never lock.
pub(super) struct Cache<K, V>(ArcSwap<Vec<(K, Arc<V>)>>);

impl<K: Copy + PartialEq, V> Cache<K, V> {
    pub fn new() -> Self {
        Self(ArcSwap::from_pointee(Vec::new()))
    }

    /// The value of a key, made now if it is new.
    #[inline]
    pub fn get(&self, key: K, make: impl FnOnce() -> V) -> Arc<V> {
        let kept = self.0.load();
        match kept.iter().find(|(k, _)| *k == key) {
            Some((_, value)) => Arc::clone(value),
            None => self.insert(key, Arc::new(make())),
        }
    }

    #[cold]
    fn insert(&self, key: K, value: Arc<V>) -> Arc<V> {
        self.0.rcu(|kept| {
            let others = kept.iter().filter(|(k, _)| *k != key).take(MOST - 1).cloned();
            std::iter::once((key, Arc::clone(&value))).chain(others).collect::<Vec<_>>()
        });
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_until_there_are_too_many() {
        let cache = Cache::new();
        for key in 0..MOST + 10 {
            assert_eq!(*cache.get(key, || key * 2), key * 2);
        }
        assert_eq!(*cache.get(MOST, || 0), MOST * 2);
        assert_eq!(*cache.get(0, || 7), 7);
        assert!(cache.0.load().len() <= MOST);
    }
}
