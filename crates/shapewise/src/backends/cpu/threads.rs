//! The thread pool: hands a batch of tasks to warm workers in well under a microsecond.
//!
//! One job at a time. Its open tasks are counted in a single word together with the job's generation, and
//! every task is claimed by one compare-and-swap on that word, so a worker that wakes up late can neither
//! run a task twice nor touch a job that is already over. The caller works too, takes whatever nobody has
//! claimed, and only waits for tasks that were really started: a worker that the system does not schedule
//! costs nothing but its help.
//!
//! Where there are more tasks than threads, each thread begins with the neighbours that it had in the last
//! run like this, whose memory is still in its own caches, and takes from others when it is done. Lines that
//! go from core to core cost as much as memory where cores share no cache.

mod place;
mod shares;

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};

use place::Place;
use shares::Shares;
pub(crate) use shares::share;

/// How long an idle worker looks for the next job before it parks: about twice what waking a parked one costs on a
/// virtual machine (50 µs), so that looking never costs much more than it saves.
const IDLE_SPIN: Duration = Duration::from_micros(100);
/// How long it does so beside those that still work: a call that two threads share is seldom worth more.
const LINGER: Duration = Duration::from_millis(2);
/// How long a caller spins for started tasks before it offers its core to them.
const WAIT_SPIN: Duration = Duration::from_micros(50);
/// How long a caller offers its core before it sleeps; long against the cost of waking it up.
const WAIT_YIELD: Duration = Duration::from_millis(2);

/// How long a measurement waits for threads to wake up.
const ROUSED_WITHIN: Duration = Duration::from_millis(1);

/// Bits of the state word that count open tasks; the rest is the generation, which 44 bits keep from coming
/// round while a worker hesitates between reading and claiming.
const OPEN_BITS: u32 = 20;
const OPEN_MASK: u64 = (1 << OPEN_BITS) - 1;
/// The most tasks of one round; longer runs take several.
const ROUND: usize = if cfg!(miri) {
    50
} else if cfg!(test) {
    1000
} else {
    OPEN_MASK as usize
};
/// The state that sends the workers home. No job has it: the last generation is never given out.
const SHUTDOWN: u64 = !OPEN_MASK;

thread_local! {
    /// Whether this thread is inside a task of some pool: more parallelism would only fight for the same cores.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Threads that share the tasks of one call at a time.
pub struct ThreadPool {
    shared: Arc<Shared>,
    threads: usize,
    workers: OnceLock<Vec<JoinHandle<()>>>,
    /// Held by the caller whose job is running.
    busy: AtomicBool,
}

/// A task by its number, which also gets the number of the thread that runs it.
type Numbered<'a> = &'a (dyn Fn(usize, usize) + Sync);

/// What a caller lends to the workers while its job runs.
struct Job<'a> {
    task: Numbered<'a>,
    first: usize,
    tasks: usize,
    /// What each thread begins with, where tasks are not handed out one at a time; `tasks` then counts threads.
    shares: Option<&'a Shares>,
}

/// The line that is written to announce a job; workers spin on its first word.
#[repr(align(128))]
struct Announcement {
    /// Generation and number of open tasks.
    state: AtomicU64,
    /// Threads that may take part, the caller included.
    participants: AtomicUsize,
    /// Valid while a task of its generation is claimed but not finished.
    job: AtomicPtr<Job<'static>>,
}

/// The line that is written when tasks end; the caller spins on it.
#[repr(align(128))]
struct Completion {
    unfinished: AtomicUsize,
    caller_sleeps: AtomicBool,
    panicked: AtomicBool,
}

struct Shared {
    announcement: Announcement,
    completion: Completion,
    /// Per worker: it is parked, or about to.
    asleep: Box<[AtomicBool]>,
    /// Per worker: where it sleeps.
    places: Box<[Place]>,
    handles: OnceLock<Box<[Thread]>>,
    caller: (Mutex<()>, Condvar),
    panic: Mutex<Option<Box<dyn Any + Send>>>,
    idle_spin: Duration,
    wait_spin: Duration,
}

impl ThreadPool {
    /// A pool of this many threads, the calling one included; workers start with the first parallel run.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        // With more threads than cores a spinning one keeps a working one from its core.
        let crowded = thread::available_parallelism().is_ok_and(|cores| threads > cores.get());
        let spin = |time: Duration| if crowded { Duration::ZERO } else { time };
        let shared = Shared {
            announcement: Announcement {
                state: AtomicU64::new(0),
                participants: AtomicUsize::new(0),
                job: AtomicPtr::default(),
            },
            completion: Completion {
                unfinished: AtomicUsize::new(0),
                caller_sleeps: AtomicBool::new(false),
                panicked: AtomicBool::new(false),
            },
            asleep: (1..threads).map(|_| AtomicBool::new(false)).collect(),
            places: (1..threads).map(|_| Place::new()).collect(),
            handles: OnceLock::new(),
            caller: (Mutex::new(()), Condvar::new()),
            panic: Mutex::new(None),
            idle_spin: spin(IDLE_SPIN),
            wait_spin: spin(WAIT_SPIN),
        };
        Self { shared: Arc::new(shared), threads, workers: OnceLock::new(), busy: AtomicBool::new(false) }
    }

    /// The most threads a run can use, the caller among them.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Runs `task(0..tasks)` on at most `threads` threads, the caller among them; returns when all are done.
    ///
    /// Each thread begins with a share of neighbours, the same one in every run of as many tasks; who is done
    /// takes half of what another has left. Called from inside a task, or while another thread's run is under
    /// way, it does everything on the calling thread. A panic of a task ends the run (tasks nobody has started
    /// may be left out) and goes on in the caller.
    pub fn run(&self, threads: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.run_numbered(threads, tasks, &|_, index| task(index));
    }

    /// The same with `task(thread, index)`: of the threads, numbered from the caller's zero, no two have one number.
    pub fn run_numbered(&self, threads: usize, tasks: usize, task: &(dyn Fn(usize, usize) + Sync)) {
        let participants = self.participants(threads, tasks);
        let mut shares = Shares::none();
        // Of two tasks the caller always has the first one; of more, workers would take any.
        let shared = participants > 2 || 1 < participants && participants < tasks;
        let shares = (shared && shares.deal(participants, tasks)).then_some(&shares);
        self.hand_out(participants, tasks, task, shares);
    }

    /// The same with no shares: whoever is free takes the next task, the first one first.
    pub fn run_in_turn(&self, threads: usize, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.hand_out(self.participants(threads, tasks), tasks, &|_, index| task(index), None);
    }

    /// How many threads run so many tasks: the caller alone inside another task.
    fn participants(&self, threads: usize, tasks: usize) -> usize {
        if INSIDE.get() { 1 } else { threads.min(self.threads).min(tasks) }
    }

    /// Hands out tasks one at a time, or by shares.
    fn hand_out(&self, participants: usize, tasks: usize, task: Numbered<'_>, shares: Option<&Shares>) {
        if participants <= 1 || self.busy.swap(true, Ordering::Acquire) {
            return (0..tasks).for_each(|index| task(0, index));
        }
        self.start_workers();
        INSIDE.set(true);
        let mut panic = None;
        if shares.is_some() {
            panic = self.shared.run_round(participants, &Job { task, first: 0, tasks: participants, shares });
        } else {
            let mut first = 0;
            while first < tasks && panic.is_none() {
                let round = (tasks - first).min(ROUND);
                panic = self.shared.run_round(participants, &Job { task, first, tasks: round, shares: None });
                first += round;
            }
        }
        INSIDE.set(false);
        self.busy.store(false, Ordering::Release);
        if let Some(payload) = panic {
            resume_unwind(payload);
        }
    }

    /// Waits until so many threads are awake, a millisecond at most: a time taken after that does not contain their waking.
    pub fn rouse(&self, threads: usize) {
        let participants = threads.min(self.threads);
        if participants <= 1 || INSIDE.get() {
            return;
        }
        let awake = AtomicUsize::new(0);
        self.run(participants, participants, &|_| {
            awake.fetch_add(1, Ordering::Relaxed);
            spin_until(ROUSED_WITHIN, || awake.load(Ordering::Relaxed) >= participants);
        });
    }

    /// Starts the workers once; with fewer than wanted the run still completes, on fewer threads.
    fn start_workers(&self) {
        self.workers.get_or_init(|| {
            let mut workers = Vec::with_capacity(self.threads - 1);
            for index in 1..self.threads {
                let shared = Arc::clone(&self.shared);
                let builder = thread::Builder::new().name(format!("shapewise-{index}"));
                match builder.spawn(move || shared.work(index)) {
                    Ok(handle) => workers.push(handle),
                    Err(error) => {
                        tracing::warn!(%error, "only {index} of {} threads could be started", self.threads);
                        break;
                    }
                }
            }
            let handles = workers.iter().map(|worker| worker.thread().clone()).collect();
            self.shared.handles.get_or_init(|| handles);
            workers
        });
    }
}

impl Drop for ThreadPool {
    fn drop(&mut self) {
        self.shared.announcement.state.store(SHUTDOWN, Ordering::SeqCst);
        for worker in self.workers.take().into_iter().flatten() {
            worker.thread().unpark();
            // Workers catch the panics of tasks, so there is nothing to pass on.
            drop(worker.join());
        }
    }
}

impl std::fmt::Debug for ThreadPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadPool").field("threads", &self.threads).finish_non_exhaustive()
    }
}

impl Shared {
    /// The caller's side of one job; gives back the panic of a task, if any. Only the holder of `busy` may call it.
    fn run_round(&self, participants: usize, job: &Job<'_>) -> Option<Box<dyn Any + Send>> {
        let announcement = &self.announcement;
        self.completion.unfinished.store(job.tasks, Ordering::Relaxed);
        announcement.participants.store(participants, Ordering::Relaxed);
        announcement.job.store((&raw const *job).cast::<Job<'static>>().cast_mut(), Ordering::Relaxed);
        let generation = next_generation(announcement.state.load(Ordering::Relaxed));
        // The caller keeps the first task for itself; the swap also orders the announcement before the look at `asleep`.
        announcement.state.swap(generation | (job.tasks as u64 - 1), Ordering::SeqCst);
        self.wake_children(0, participants);
        self.finish(self.run_tasks(job, generation, 0, 0));
        self.wait();
        // A worker's panic is in place before its tasks count as finished.
        if !self.completion.panicked.load(Ordering::Relaxed) {
            return None;
        }
        self.completion.panicked.store(false, Ordering::Relaxed);
        lock(&self.panic).take()
    }

    /// Runs an already claimed task of the job on this thread and then all it can claim; gives their number.
    fn run_tasks(&self, job: &Job<'_>, generation: u64, thread: usize, claimed: usize) -> usize {
        let mut finished = 0;
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let mut next = Some(claimed);
            while let Some(index) = next {
                finished += 1;
                match job.shares {
                    // Who is alone need not look what others have left, whose lines are in their caches.
                    Some(shares) => shares.work(thread, job.task, || {
                        self.completion.unfinished.load(Ordering::Relaxed) <= finished
                    }),
                    None => (job.task)(thread, job.first + index),
                }
                next = self.claim(generation).map(|open| job.tasks - open);
            }
        }));
        if let Err(payload) = outcome {
            finished += self.claim_all(generation);
            let first = !self.completion.panicked.swap(true, Ordering::Relaxed);
            if first {
                *lock(&self.panic) = Some(payload);
            } else {
                // A second panic has nobody to go to; not even one in its destructor may end a worker.
                drop(catch_unwind(AssertUnwindSafe(|| drop(payload))));
            }
        }
        finished
    }

    /// Counts tasks as finished; after that the job may be gone, so no reference to it may be left.
    fn finish(&self, finished: usize) {
        let before = self.completion.unfinished.fetch_sub(finished, Ordering::SeqCst);
        if before == finished && self.completion.caller_sleeps.load(Ordering::SeqCst) {
            drop(lock(&self.caller.0));
            self.caller.1.notify_all();
        }
    }

    /// Takes one open task of this generation; gives the number of open tasks before.
    fn claim(&self, generation: u64) -> Option<usize> {
        let state = &self.announcement.state;
        let mut seen = state.load(Ordering::Acquire);
        while seen & !OPEN_MASK == generation && seen & OPEN_MASK != 0 {
            match state.compare_exchange_weak(seen, seen - 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some((seen & OPEN_MASK) as usize),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Takes all open tasks of a generation that the calling thread is still counted in; gives their number.
    fn claim_all(&self, generation: u64) -> usize {
        (self.announcement.state.swap(generation, Ordering::AcqRel) & OPEN_MASK) as usize
    }

    /// Waits until every task of the caller's job is finished.
    fn wait(&self) {
        let done = || self.completion.unfinished.load(Ordering::SeqCst) == 0;
        if done() || spin_until(self.wait_spin, done) {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < WAIT_YIELD {
            if done() {
                return;
            }
            thread::yield_now();
        }
        let mut guard = lock(&self.caller.0);
        self.completion.caller_sleeps.store(true, Ordering::SeqCst);
        while !done() {
            guard = self.caller.1.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
        self.completion.caller_sleeps.store(false, Ordering::SeqCst);
    }

    /// The life of worker `index` (the caller counts as 0).
    fn work(&self, index: usize) {
        INSIDE.set(true);
        loop {
            let news = || self.has_news(index);
            if !self.linger(news) {
                self.park(index, news);
            }
            let seen = self.announcement.state.load(Ordering::Acquire);
            let generation = seen & !OPEN_MASK;
            if seen == SHUTDOWN {
                return;
            }
            let participants = self.announcement.participants.load(Ordering::Relaxed);
            let job = self.announcement.job.load(Ordering::Relaxed);
            if seen & OPEN_MASK == 0 || index >= participants {
                continue;
            }
            if let Some(open) = self.claim(generation) {
                self.wake_children(index, participants);
                // SAFETY: the claim succeeded, so the generation was still the one under which `job` was
                // announced, and its caller stays in `run_round` until `finish` has counted the task.
                let job = unsafe { &*job };
                self.finish(self.run_tasks(job, generation, index, job.tasks - open));
            }
        }
    }

    /// Looks for news for a while; whether there is some. While others still work on a job the next one is near: whoever woke up too
    /// late for this one, and slept again, would be too late for the next one as well.
    fn linger(&self, news: impl Fn() -> bool) -> bool {
        let start = Instant::now();
        loop {
            if spin_until(self.idle_spin, &news) {
                return true;
            }
            let working = self.completion.unfinished.load(Ordering::Relaxed) > 0;
            if !working || self.idle_spin.is_zero() || start.elapsed() > LINGER {
                return false;
            }
        }
    }

    /// Whether there is something to do for worker `index`.
    fn has_news(&self, index: usize) -> bool {
        let seen = self.announcement.state.load(Ordering::SeqCst);
        let open = seen & OPEN_MASK != 0;
        seen == SHUTDOWN || (open && index < self.announcement.participants.load(Ordering::Relaxed))
    }

    /// Sleeps until there is news. Either this thread sees the news after raising its flag, or the announcer sees the flag.
    fn park(&self, index: usize, news: impl Fn() -> bool) {
        let (asleep, place) = (&self.asleep[index - 1], &self.places[index - 1]);
        place.leave();
        asleep.store(true, Ordering::SeqCst);
        while !news() && asleep.load(Ordering::SeqCst) {
            thread::park();
        }
        asleep.store(false, Ordering::Relaxed);
        place.arrive();
    }

    /// Wakes the sleepers that participant `index` answers for: everyone wakes two, so no one wakes them all.
    fn wake_children(&self, index: usize, participants: usize) {
        let handles = self.handles.get().map_or(&[][..], |handles| handles);
        for child in [2 * index + 1, 2 * index + 2] {
            if child < participants && child <= handles.len() && self.asleep[child - 1].load(Ordering::SeqCst)
            {
                self.places[child - 1].make_way();
                self.asleep[child - 1].store(false, Ordering::SeqCst);
                handles[child - 1].unpark();
            }
        }
    }
}

/// The generation after the one of this state; the one of `SHUTDOWN` is left out.
fn next_generation(state: u64) -> u64 {
    let next = (state & !OPEN_MASK).wrapping_add(1 << OPEN_BITS);
    if next == SHUTDOWN { 0 } else { next }
}

/// Spins until the condition holds (true) or the time is over (false).
fn spin_until(time: Duration, condition: impl Fn() -> bool) -> bool {
    if time.is_zero() {
        return condition();
    }
    // The clock is only read between looks, first when the condition has not come soon.
    let mut start = None;
    loop {
        for _ in 0..64 {
            if condition() {
                return true;
            }
            std::hint::spin_loop();
        }
        let now = Instant::now();
        if now - *start.get_or_insert(now) >= time {
            return false;
        }
    }
}

/// Locks even after a panic: what these mutexes guard is always whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
