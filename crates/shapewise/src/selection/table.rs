//! The decision table: immutable snapshots that calls read without a lock.

use std::array;
use std::hash::Hasher;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::trials::Trials;
use super::{Candidate, Watch};
use crate::backends::cpu::{Loan, Near};
use crate::ops::{Bound, KeptWords, ShortKey, Words, Workload};
use crate::tracking::History;

/// Snapshots side by side, so that publishing copies only one of them.
const SHARDS: usize = 64;
/// Workloads that a shard holds; above, those that were not used since the last clearing go.
const LARGEST_SHARD: usize = 1024;

/// The picked candidate.
#[derive(Clone)]
pub struct Choice {
    /// The kernel, its parameters, and what is known about its time.
    pub candidate: Arc<Candidate>,
    /// The rule that decided.
    pub reason: String,
}

/// A workload's place in the table.
pub(crate) struct Entry {
    key: KeptWords,
    /// What was asked for; its descriptions serve every later call.
    pub workload: Arc<Workload>,
    /// Decisions of an older generation of the kernel registry are stale.
    pub generation: u64,
    pub choice: Choice,
    /// The choice ready for this workload, where its kernel offers that.
    pub bound: Option<Bound>,
    /// The choice's parameters in words, as histories know them.
    pub parameters: String,
    /// The race that is under way; `None` when the choice is settled.
    pub trials: Option<Mutex<Trials>>,
    pub watch: Watch,
    pub history: Arc<History>,
    /// Set when another entry has taken its place: whoever holds it looks the workload up again.
    retired: AtomicBool,
}

impl Entry {
    /// A settled choice, or one whose rivals are on trial; `every_call` is to be timed where a user limits the time.
    pub fn new(
        workload: Arc<Workload>,
        generation: u64,
        choice: Choice,
        trials: Option<Trials>,
        history: Arc<History>,
        every_call: bool,
    ) -> Arc<Self> {
        let Candidate { kernel, parameters, measured, .. } = &*choice.candidate;
        // A user's kernel is launched, whatever it would answer.
        let bound = if kernel.is_custom() { None } else { kernel.bind(&workload, parameters) };
        let measured = *measured;
        Arc::new(Self {
            key: Words::of(&workload).keep(),
            workload,
            generation,
            parameters: choice.candidate.parameters.to_string(),
            choice,
            bound,
            // While candidates take turns every call is timed, and nothing is expected.
            watch: Watch::new(measured.filter(|_| trials.is_none()), every_call),
            trials: trials.map(Mutex::new),
            history,
            retired: AtomicBool::new(false),
        })
    }

    /// Whether it is that of a short key.
    #[inline(always)]
    pub fn is_of<const K: usize, const M: usize>(&self, key: &ShortKey<K, M>) -> bool {
        self.key.is_short(key)
    }

    /// Whether it still is what calls of this generation of the registry run.
    #[inline(always)]
    pub fn is_current(&self, generation: u64) -> bool {
        self.generation == generation && !self.retired.load(Ordering::Relaxed)
    }
}

impl Entry {
    /// The candidate that calls run and why: while a race is on, the one that leads it.
    pub fn running(&self) -> (Candidate, String) {
        let Choice { candidate, reason } = &self.choice;
        // Never waits: whoever holds the race is running one of its turns.
        let trials = self.trials.as_ref().and_then(|trials| trials.try_lock().ok());
        let leading = trials.as_ref().and_then(|trials| trials.leading());
        leading.map_or_else(
            || (Candidate::clone(candidate), reason.clone()),
            |(leader, rounds)| {
                let rounds = if rounds == 1 { "1 round".into() } else { format!("{rounds} rounds") };
                (leader.clone(), format!("leads the race on this workload's own calls after {rounds}"))
            },
        )
    }

    /// Kernel, parameters and calls of everything that ran under this entry.
    pub fn executions(&self) -> Vec<(String, String, u64)> {
        let row = |candidate: &Candidate, calls: u64| {
            (candidate.kernel.name().to_owned(), candidate.parameters.to_string(), calls)
        };
        let Some(trials) = &self.trials else {
            return vec![row(&self.choice.candidate, self.watch.calls())];
        };
        let trials = trials.lock().unwrap_or_else(PoisonError::into_inner);
        let mut rows: Vec<_> = trials.results().map(|t| row(&t.candidate, t.runs)).collect();
        // Calls beside the race, for which the budget or another thread left no turn, ran the choice as it stood.
        rows.push(row(&self.choice.candidate, self.watch.calls().saturating_sub(trials.turns())));
        rows
    }
}

impl Drop for Entry {
    /// What a replaced entry counted goes to the workload's history.
    fn drop(&mut self) {
        for (kernel, parameters, calls) in self.executions().into_iter().filter(|row| row.2 > 0) {
            self.history.executed(&kernel, &parameters, calls);
        }
    }
}

/// Open addressing over a power of two of slots; at most half of them are used.
#[derive(Default)]
pub(crate) struct Shard {
    slots: Box<[Option<Arc<Entry>>]>,
    len: usize,
}

impl Shard {
    /// The entry of a key with this hash, if there is one.
    #[inline(always)]
    pub fn find(&self, key: &Words, hash: u64) -> Option<&Arc<Entry>> {
        // Without slots there is no mask, and the first look finds nothing.
        let mask = self.slots.len().wrapping_sub(1);
        let mut i = place(hash) & mask;
        while let Some(Some(entry)) = self.slots.get(i) {
            if entry.key.is(key, hash) {
                return Some(entry);
            }
            i = (i + 1) & mask;
        }
        None
    }

    /// The same entries and one more, or one in the place of its predecessor.
    fn with(&self, entry: &Arc<Entry>) -> Self {
        let crowded = self.len >= LARGEST_SHARD;
        let stays = |other: &Entry| {
            other.key != entry.key
                && other.generation == entry.generation
                && (!crowded || other.watch.used_since())
        };
        let (kept, gone): (Vec<_>, Vec<_>) = self.slots.iter().flatten().partition(|e| stays(e));
        for old in gone {
            old.retired.store(true, Ordering::Relaxed);
        }
        let kept = kept.into_iter().cloned();
        let entries: Vec<_> = kept.take(LARGEST_SHARD - 1).chain([Arc::clone(entry)]).collect();
        let mut slots = vec![None; (entries.len() * 2).next_power_of_two()].into_boxed_slice();
        let (len, mask) = (entries.len(), slots.len() - 1);
        for entry in entries {
            let mut i = place(entry.key.hash()) & mask;
            while slots[i].is_some() {
                i = (i + 1) & mask;
            }
            slots[i] = Some(entry);
        }
        Self { slots, len }
    }
}

/// Where in its shard a key with this hash is looked for: the upper bits choose the shard, those below them are next best.
#[inline(always)]
fn place(hash: u64) -> usize {
    (hash >> 32) as usize
}

/// The entry that short calls of one kind found again and again: what a row of equal calls runs without looking it up. Exact, because its
/// key is compared and it knows when another one has taken its place.
#[derive(Default)]
pub(crate) struct Latest {
    near: OnceLock<Near<Entry>>,
    /// The address of what `near` has.
    held: AtomicUsize,
    /// The address of what was found last, and how often in a row.
    found: AtomicUsize,
    times: AtomicU32,
}

/// Calls in a row that find the same entry before it is kept: replacing it takes longer than looking some up.
const ROW: u32 = 16;

impl Latest {
    /// The entry, for the thread that asked first.
    #[inline(always)]
    pub fn lend(&self) -> Option<Loan<'_, Entry>> {
        self.near.get()?.lend()
    }

    /// Counts a call that found an entry in the table.
    pub fn note(&self, entry: &Arc<Entry>) {
        let address = Arc::as_ptr(entry).addr();
        if self.held.load(Ordering::Relaxed) == address {
            return;
        }
        let same = self.found.load(Ordering::Relaxed) == address;
        let times = if same { self.times.load(Ordering::Relaxed) + 1 } else { 1 };
        self.found.store(address, Ordering::Relaxed);
        self.times.store(times, Ordering::Relaxed);
        if times >= ROW {
            self.keep(entry);
        }
    }

    #[cold]
    fn keep(&self, entry: &Arc<Entry>) {
        self.near.get_or_init(|| Near::new(Arc::clone(entry))).set(Arc::clone(entry));
        self.held.store(Arc::as_ptr(entry).addr(), Ordering::Relaxed);
    }

    /// Lets go of an entry whose place another one has taken.
    fn renew(&self, entry: &Arc<Entry>) {
        if self.near.get().is_some_and(|near| near.get().retired.load(Ordering::Relaxed)) {
            self.keep(entry);
        }
    }
}

/// Entries by workload.
pub(crate) struct DecisionTable {
    shards: [Near<Shard>; SHARDS],
    latest: [Latest; SHARDS],
}

impl Default for DecisionTable {
    fn default() -> Self {
        let empty = Arc::new(Shard::default());
        Self {
            shards: array::from_fn(|_| Near::new(Arc::clone(&empty))),
            latest: array::from_fn(|_| Latest::default()),
        }
    }
}

impl DecisionTable {
    /// The part of the table where a key with this hash is.
    #[inline(always)]
    pub fn shard(&self, hash: u64) -> &Near<Shard> {
        &self.shards[(hash >> 58) as usize]
    }

    /// What short calls of this kind found last; any number will do, the same for the same kind.
    #[inline(always)]
    pub fn latest(&self, kind: usize) -> &Latest {
        &self.latest[kind % SHARDS]
    }

    /// Calls `found` with a workload's entry, by its key and the key's hash, if there is one of this generation.
    #[inline]
    pub fn with<R>(
        &self,
        key: &Words,
        hash: u64,
        generation: u64,
        found: impl FnOnce(&Arc<Entry>) -> R,
    ) -> Option<R> {
        self.shard(hash).with(|snapshot| {
            let entry = snapshot.find(key, hash)?;
            (entry.generation == generation).then(|| found(entry))
        })
    }

    /// A workload's entry, if there is one of this generation.
    pub fn get(&self, workload: &Workload, generation: u64) -> Option<Arc<Entry>> {
        let key = Words::of(workload);
        let hash = key.finish();
        let snapshot = self.shard(hash).get();
        snapshot.find(&key, hash).filter(|entry| entry.generation == generation).cloned()
    }

    /// Publishes an entry in the place of its predecessor; entries of other generations in its shard are dropped.
    pub fn publish(&self, entry: &Arc<Entry>) {
        self.shard(entry.key.hash()).change(|old| old.with(entry));
        self.latest.iter().for_each(|latest| latest.renew(entry));
    }

    /// Number of workloads decided.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.get().len).sum()
    }

    /// Every entry.
    pub fn entries(&self) -> Vec<Arc<Entry>> {
        let all = |shard: &Near<Shard>| shard.get().slots.iter().flatten().cloned().collect::<Vec<_>>();
        self.shards.iter().flat_map(all).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::candidates::tests::made_up;
    use super::super::policy::tests::workload;
    use super::*;

    #[test]
    fn while_a_race_is_on_its_leader_is_told() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1.1e-3, 1.5)];
        let choice = Choice { candidate: Arc::new(candidates[0].clone()), reason: "least score".into() };
        let trials = Trials::new(&candidates, 0, |_| true);
        let entry = Entry::new(Arc::new(workload()), 0, choice, trials, Arc::default(), false);
        let (first, reason) = entry.running();
        assert_eq!((first.parameters.threads(), &*reason), (1, "least score"));
        // A rehearsal and a round of four calls each, workers woken once: what was predicted to be slower turns out to be faster.
        for _ in 0..11 {
            let mut trials = entry.trials.as_ref().unwrap().lock().unwrap();
            let seconds = if trials.turn().parameters.threads() == 1 { 2e-3 } else { 1e-3 };
            trials.record(seconds);
        }
        let (leader, reason) = entry.running();
        assert_eq!(leader.parameters.threads(), 2);
        assert_eq!(reason, "leads the race on this workload's own calls after 1 round");
    }

    #[test]
    fn every_call_counts_once_when_a_race_goes_on_under_another_choice() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1.1e-3, 1.5)];
        let choice = |i: usize| Choice { candidate: Arc::new(candidates[i].clone()), reason: "leads".into() };
        let (workload, history) = (Arc::new(workload()), Arc::<History>::default());
        let entry =
            |i, trials| Entry::new(Arc::clone(&workload), 0, choice(i), trials, Arc::clone(&history), false);
        let call = |entry: &Entry, turn: bool| {
            entry.watch.due();
            if turn {
                entry.trials.as_ref().unwrap().lock().unwrap().record(1e-3);
            }
        };
        let first = entry(0, Trials::new(&candidates, 0, |_| true));
        (0..7).for_each(|_| call(&first, true));
        (0..3).for_each(|_| call(&first, false));
        let handed = first.trials.as_ref().unwrap().lock().unwrap().hand_over();
        let second = entry(1, Some(handed));
        (0..4).for_each(|_| call(&second, true));
        (0..2).for_each(|_| call(&second, false));
        let total = |entry: &Entry| entry.executions().iter().map(|row| row.2).sum::<u64>();
        assert_eq!((total(&first), total(&second)), (3, 13));
        assert_eq!(first.running().0.parameters.threads(), 1, "the race is elsewhere");
    }

    #[test]
    fn what_calls_find_again_and_again_is_kept_until_another_takes_its_place() {
        let candidates = [made_up(1, 1e-3, 1.5), made_up(2, 1.1e-3, 1.5)];
        let choice = |i: usize| Choice { candidate: Arc::new(candidates[i].clone()), reason: "leads".into() };
        let workload = Arc::new(workload());
        let entry = |i| Entry::new(Arc::clone(&workload), 0, choice(i), None, Arc::default(), false);
        let (table, first, second) = (DecisionTable::default(), entry(0), entry(1));
        table.publish(&first);
        for _ in 0..ROW {
            assert!(table.latest(0).lend().is_none(), "kept too early");
            table.latest(0).note(&second);
            table.latest(0).note(&first);
        }
        (0..ROW).for_each(|_| table.latest(0).note(&first));
        let loan = table.latest(0).lend().expect("kept");
        assert!(std::ptr::eq(loan.value(), Arc::as_ptr(&first)) && loan.value().is_current(0));
        assert!(!loan.value().is_current(1), "of another generation");
        table.publish(&second);
        assert!(!loan.value().is_current(0), "its place is taken");
        drop(loan);
        assert_eq!(Arc::strong_count(&first), 1, "nothing holds it any more");
        let loan = table.latest(0).lend().expect("kept");
        assert!(std::ptr::eq(loan.value(), Arc::as_ptr(&second)) && loan.value().is_current(0));
    }
}
