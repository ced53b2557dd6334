//! Calls that were made before: from their words to their kernel.

use std::hash::Hasher;
use std::sync::Arc;

use super::Runtime;
use crate::backends::cpu::Near;
use crate::error::{Result, Thin};
use crate::ops::{ShortKey, Words};
use crate::selection::{self, Entry, LaunchFailure, Panic};
use crate::tensor::{Peeked, Word};

impl Runtime {
    /// Runs a request that is in the decision table, where only those are that were found to be right.
    #[inline(always)]
    pub(crate) fn execute_known(&self, key: &Words, pointers: &[*mut u8]) -> Option<Thin> {
        // In the caller, where words that its compiler knows are hashed already.
        let hash = key.finish();
        self.execute_hashed(key, hash, pointers)
    }

    #[inline(never)]
    fn execute_hashed(&self, key: &Words, hash: u64, pointers: &[*mut u8]) -> Option<Thin> {
        if self.recorder.is_some() {
            return None;
        }
        let generation = self.kernels().generation();
        let Some(loan) = self.selector.table.shard(hash).lend() else {
            return self.execute_beside(key, hash, generation, pointers);
        };
        let entry = loan.value().find(key, hash)?;
        if entry.generation == generation { Some(self.run(entry, pointers)) } else { None }
    }

    /// The same for a short key of this kind of call. It melts into the call: what is handed over through memory is late, and the results of
    /// the call before leave no room for this one's in the queue of stores until its kernel is found.
    #[inline(always)]
    pub(crate) fn execute_short<const K: usize, const M: usize>(
        &self,
        kind: usize,
        operation: [u64; K],
        operands: [Peeked; M],
        are_usual: impl Fn([Word; M]) -> bool,
    ) -> Option<Thin> {
        let key = ShortKey { operation, operands: operands.map(|operand| operand.word) };
        let pointers = operands.map(|operand| operand.first);
        if self.recorder.is_none()
            && let Some(loan) = self.selector.table.latest(kind).lend()
            && loan.value().is_current(self.kernels().generation())
            && loan.value().is_of(&key)
        {
            return Some(self.run_short(loan.value(), pointers));
        }
        self.execute_looked_up(kind, key, pointers, are_usual)
    }

    /// The same by the table.
    #[inline(never)]
    fn execute_looked_up<const K: usize, const M: usize>(
        &self,
        kind: usize,
        key: ShortKey<K, M>,
        pointers: [*mut u8; M],
        are_usual: impl Fn([Word; M]) -> bool,
    ) -> Option<Thin> {
        if self.recorder.is_some() || !are_usual(key.operands) {
            return None;
        }
        let (key, generation) = (key.words(), self.kernels().generation());
        let (hash, table) = (key.finish(), &self.selector.table);
        let run = |entry: &Arc<Entry>| {
            table.latest(kind).note(entry);
            self.run(entry, &pointers)
        };
        table.with(&key, hash, generation, run)
    }

    /// The same for threads other than the first that asked for a workload of this part of the table.
    #[inline(never)]
    fn execute_beside(&self, key: &Words, hash: u64, generation: u64, pointers: &[*mut u8]) -> Option<Thin> {
        self.selector.table.with(key, hash, generation, |entry| self.run(entry, pointers))
    }

    /// Launches what an entry says; a few of the calls are timed.
    #[inline(always)]
    pub(super) fn run(&self, entry: &Entry, pointers: &[*mut u8]) -> Thin {
        self.run_counted(entry, pointers, entry.watch.due())
    }

    /// The same for as many operands as the call's compiler knows.
    #[inline(always)]
    fn run_short<const M: usize>(&self, entry: &Entry, pointers: [*mut u8; M]) -> Thin {
        let due = entry.watch.due();
        if !due && entry.bound.as_ref().is_some_and(|bound| bound.run_short(pointers)) {
            return Ok(());
        }
        // Only a copy of the addresses goes through memory.
        self.run_counted_apart(entry, &{ pointers }, due)
    }

    #[inline(never)]
    fn run_counted_apart(&self, entry: &Entry, pointers: &[*mut u8], due: bool) -> Thin {
        self.run_counted(entry, pointers, due)
    }

    /// The same for a call that was counted already.
    #[inline(always)]
    fn run_counted(&self, entry: &Entry, pointers: &[*mut u8], due: bool) -> Thin {
        match &entry.bound {
            Some(bound) if !due => match selection::run_bound(bound, pointers) {
                Ok(()) => Ok(()),
                Err(panic) => self.recover_panicked(entry, pointers, panic),
            },
            _ => self.run_apart(entry, pointers, due),
        }
    }

    /// The calls that are not as short as can be; apart, so that those which are save no registers for them.
    #[inline(never)]
    fn run_apart(&self, entry: &Entry, pointers: &[*mut u8], due: bool) -> Thin {
        if due {
            return self.run_watched(entry, pointers).map_err(Box::new);
        }
        match self.launch_choice(entry, pointers) {
            Ok(()) => Ok(()),
            Err(failure) => self.recover_choice(entry, pointers, &failure),
        }
    }

    #[cold]
    #[inline(never)]
    fn recover_panicked(&self, entry: &Entry, pointers: &[*mut u8], panic: Panic) -> Thin {
        self.recover_choice(entry, pointers, &panic.into())
    }

    #[cold]
    #[inline(never)]
    fn recover_choice(&self, entry: &Entry, pointers: &[*mut u8], failure: &LaunchFailure) -> Thin {
        self.recover(&entry.choice.candidate, entry, pointers, failure).map_err(Box::new)
    }

    /// Launches a choice made earlier, for the thread that did so first, unless it has been replaced.
    #[inline(always)]
    pub(crate) fn launch_short<const M: usize>(
        &self,
        entry: &Near<Entry>,
        pointers: [*mut u8; M],
    ) -> Option<Thin> {
        let loan = entry.lend()?;
        let current = loan.value().is_current(self.kernels().generation());
        if current { Some(self.run_short(loan.value(), pointers)) } else { None }
    }

    /// Launches a choice made earlier; one that has been replaced is looked up again first.
    #[inline]
    pub(crate) fn launch_prepared(&self, entry: &Near<Entry>, pointers: &[*mut u8]) -> Result<()> {
        let generation = self.kernels().generation();
        let run = |current: &Entry| current.is_current(generation).then(|| self.run(current, pointers));
        if let Some(done) = entry.with(run) {
            return Ok(done?);
        }
        let next = self.selector.entry(&entry.get().workload)?;
        entry.set(Arc::clone(&next));
        Ok(self.run(&next, pointers)?)
    }
}
