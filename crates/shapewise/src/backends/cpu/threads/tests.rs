use super::*;

const REPEATS: usize = if cfg!(miri) { 10 } else { 20_000 };

/// Runs `tasks` and asserts that every index came exactly once.
fn check(pool: &ThreadPool, threads: usize, tasks: usize) {
    let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
    pool.run(threads, tasks, &|index| {
        counts[index].fetch_add(1, Ordering::Relaxed);
    });
    assert!(
        counts.iter().all(|count| count.load(Ordering::Relaxed) == 1),
        "{threads} threads, {tasks} tasks"
    );
}

#[test]
fn threads_have_numbers_of_their_own() {
    for threads in [1, 2, 3, 65] {
        let pool = ThreadPool::new(threads);
        for tasks in [0, 1, 2, 3, 7, 200] {
            let counts: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
            let inside: Vec<AtomicUsize> = (0..threads).map(|_| AtomicUsize::new(0)).collect();
            pool.run_numbered(threads, tasks, &|thread, index| {
                assert_eq!(inside[thread].fetch_add(1, Ordering::SeqCst), 0, "two threads have one number");
                counts[index].fetch_add(1, Ordering::Relaxed);
                inside[thread].fetch_sub(1, Ordering::SeqCst);
            });
            let once = counts.iter().all(|count| count.load(Ordering::Relaxed) == 1);
            assert!(once, "{threads} threads, {tasks} tasks");
        }
    }
}

#[test]
fn threads_begin_with_the_share_that_they_had_before() {
    let pool = ThreadPool::new(2);
    let first: [AtomicUsize; 2] = std::array::from_fn(|_| AtomicUsize::new(usize::MAX));
    for _ in 0..10 {
        let met = AtomicUsize::new(0);
        pool.run_numbered(2, 10, &|thread, index| {
            if index == 0 || index == 5 {
                // Nobody goes on before both have begun, so that no share is taken over.
                met.fetch_add(1, Ordering::SeqCst);
                while met.load(Ordering::SeqCst) < 2 {
                    thread::yield_now();
                }
                first[usize::from(index == 5)].store(thread, Ordering::SeqCst);
            }
        });
        assert_eq!(first.each_ref().map(|f| f.load(Ordering::SeqCst)), [0, 1]);
    }
}

#[test]
fn in_turn_every_task_runs_once() {
    let pool = ThreadPool::new(2);
    for tasks in [0, 1, 2, 100] {
        let sum = AtomicUsize::new(0);
        pool.run_in_turn(2, tasks, &|index| {
            sum.fetch_add(index + 1, Ordering::Relaxed);
        });
        assert_eq!(sum.into_inner(), tasks * (tasks + 1) / 2);
    }
}

#[test]
fn runs_every_index_exactly_once() {
    for size in [0, 1, 2, 3, 7] {
        let pool = ThreadPool::new(size);
        assert_eq!(pool.threads(), size.max(1));
        for threads in [0, 1, 2, 3, 100] {
            for tasks in [0, 1, 2, 3, 5, 64] {
                check(&pool, threads, tasks);
            }
        }
    }
}

#[test]
fn long_runs_take_several_rounds() {
    let pool = ThreadPool::new(2);
    for tasks in [ROUND - 1, ROUND, ROUND + 1, 2 * ROUND + 7] {
        check(&pool, 2, tasks);
        let ran = AtomicUsize::new(0);
        pool.run_in_turn(2, tasks, &|_| {
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(ran.into_inner(), tasks);
    }
}

#[test]
fn many_short_runs() {
    let pool = ThreadPool::new(2);
    for repeat in 0..REPEATS {
        check(&pool, 2, repeat % 5);
    }
    let crowded = ThreadPool::new(5);
    for repeat in 0..REPEATS / 10 {
        check(&crowded, repeat % 7, repeat % 9);
    }
}

#[test]
fn workers_help_and_stay_within_the_limit() {
    let pool = ThreadPool::new(4);
    for threads in [2, 3, 4] {
        let ids = Mutex::new(std::collections::HashSet::new());
        let inside = AtomicUsize::new(0);
        // Nobody leaves before as many threads as allowed have met.
        pool.run(threads, threads, &|_| {
            lock(&ids).insert(thread::current().id());
            inside.fetch_add(1, Ordering::SeqCst);
            while inside.load(Ordering::SeqCst) < threads {
                thread::yield_now();
            }
        });
        assert_eq!(lock(&ids).len(), threads);
        let ids = Mutex::new(std::collections::HashSet::new());
        pool.run(threads, 50, &|_| {
            lock(&ids).insert(thread::current().id());
        });
        assert!(lock(&ids).len() <= threads);
    }
}

#[test]
fn only_one_thread_starts_nothing() {
    let pool = ThreadPool::new(8);
    check(&pool, 1, 100);
    check(&pool, 8, 1);
    assert!(pool.workers.get().is_none());
}

#[test]
fn nested_runs_stay_on_their_thread() {
    let pool = ThreadPool::new(3);
    let other = ThreadPool::new(3);
    pool.run(3, 6, &|_| {
        let me = thread::current().id();
        for nested in [&pool, &other] {
            let sum = AtomicUsize::new(0);
            nested.run(3, 10, &|index| {
                assert_eq!(thread::current().id(), me);
                sum.fetch_add(index, Ordering::Relaxed);
            });
            assert_eq!(sum.into_inner(), 45);
        }
    });
    assert!(other.workers.get().is_none());
    check(&other, 3, 10);
}

#[test]
fn concurrent_callers_all_finish() {
    let pool = ThreadPool::new(3);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for tasks in 0..REPEATS.min(500) {
                    check(&pool, 3, tasks % 11);
                }
            });
        }
    });
}

#[test]
fn a_panic_reaches_the_caller_and_the_pool_goes_on() {
    let pool = ThreadPool::new(3);
    for repeat in 0..REPEATS.min(50) {
        let ran = AtomicUsize::new(0);
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            pool.run(3, 20, &|index| {
                ran.fetch_add(1, Ordering::Relaxed);
                if index % 7 == repeat % 7 {
                    resume_unwind(Box::new(index));
                }
            });
        }));
        let index = *outcome.unwrap_err().downcast::<usize>().unwrap();
        assert_eq!(index % 7, repeat % 7);
        assert!((1..=20).contains(&ran.into_inner()));
        check(&pool, 3, 20);
        assert!(lock(&pool.shared.panic).is_none());
    }
}

#[test]
fn panics_of_all_threads_and_of_destructors_are_survived() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !thread::panicking() && INSIDE.get() {
                resume_unwind(Box::new("destructor"));
            }
        }
    }
    let pool = ThreadPool::new(3);
    let inside = AtomicUsize::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        pool.run(3, 3, &|_| {
            inside.fetch_add(1, Ordering::SeqCst);
            while inside.load(Ordering::SeqCst) < 3 {
                thread::yield_now();
            }
            resume_unwind(Box::new(Bomb));
        });
    }));
    assert!(outcome.unwrap_err().is::<Bomb>());
    check(&pool, 3, 20);
}

#[test]
fn parked_workers_wake_up_and_go_home() {
    for threads in [2, 3, 6] {
        let pool = ThreadPool::new(threads);
        for _ in 0..3 {
            check(&pool, threads, threads);
            let sleepers = || pool.shared.asleep.iter().filter(|flag| flag.load(Ordering::SeqCst)).count();
            while sleepers() < threads - 1 {
                thread::yield_now();
            }
            let inside = AtomicUsize::new(0);
            pool.run(threads, threads, &|_| {
                inside.fetch_add(1, Ordering::SeqCst);
                while inside.load(Ordering::SeqCst) < threads {
                    thread::yield_now();
                }
            });
        }
    }
}

#[test]
fn a_caller_sleeps_through_a_long_task() {
    let pool = ThreadPool::new(2);
    let caller = thread::current().id();
    let joined = AtomicBool::new(false);
    let finished = AtomicBool::new(false);
    pool.run(2, 2, &|_| {
        if thread::current().id() == caller {
            while !joined.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        } else {
            joined.store(true, Ordering::SeqCst);
            thread::sleep(3 * WAIT_YIELD);
            finished.store(true, Ordering::SeqCst);
        }
    });
    assert!(finished.into_inner());
}

#[test]
fn generations_never_reach_the_shutdown_state() {
    assert_eq!(next_generation(0), 1 << OPEN_BITS);
    assert_eq!(next_generation((5 << OPEN_BITS) | 0x11), 6 << OPEN_BITS);
    assert_eq!(next_generation(SHUTDOWN - 1), 0);
}

#[test]
fn roused_threads_all_take_part() {
    let pool = ThreadPool::new(3);
    for threads in [0, 1, 2, 3, 9] {
        pool.rouse(threads);
    }
    // From inside a task there is nobody to wake, and nothing to wait for in vain.
    pool.run(2, 2, &|_| pool.rouse(3));
    let ran = AtomicUsize::new(0);
    pool.run(3, 30, &|_| {
        ran.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(ran.into_inner(), 30);
}
