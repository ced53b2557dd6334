"""What a call from Python costs on small arrays, beside numpy's own: python crates/shapewise-python/benches/overhead.py

Calls take turns, 2000 at a time, so that whatever disturbs the machine disturbs all of them. "kernel" is the time of the
chosen kernel alone as Rust measures it; what a call takes above it is checks, look-up, result and Python.
"""

import sys
import time

import numpy as np

import shapewise as sw

CALLS, TURNS = 2000, 41


def timed(call, a, b):
    start = time.perf_counter()
    for _ in range(CALLS):
        call(a, b)
    return (time.perf_counter() - start) / CALLS * 1e6


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    rng = np.random.default_rng(0)
    a, b = (rng.random((size, size), dtype="float32") for _ in range(2))
    runtime = sw.Runtime(store="memory")
    np.testing.assert_allclose(runtime.matmul(a, b), a @ b, rtol=1e-4)
    pairs = {"matmul": (runtime.matmul, np.matmul), "add": (runtime.add, np.add)}
    for ours, _ in pairs.values():
        timed(ours, a, b)
    runtime.flush()
    for name, (ours, theirs) in pairs.items():
        turns = [(timed(ours, a, b), timed(theirs, a, b)) for _ in range(TURNS)]
        median = lambda times: sorted(times)[TURNS // 2]
        mine, other = (median([turn[i] for turn in turns]) for i in (0, 1))
        ratio = median([turn[0] / turn[1] for turn in turns])
        kernel = next(entry for entry in runtime.bench(name, a, b) if entry["chosen"])["median_seconds"]
        above = f"{mine - kernel * 1e6:.2f} µs above its kernel, " if kernel else ""
        print(f"{name} {size}×{size}: {mine:.2f} µs, {above}numpy {other:.2f} µs, {ratio:.2f} of numpy's")


if __name__ == "__main__":
    main()
