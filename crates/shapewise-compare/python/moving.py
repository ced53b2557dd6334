"""Times numpy and torch on what moves data, and torch on attention; prints records as the other contestants write them.

    python moving.py --threads 2 --filter sort,topk --json records.json

Each record has workload, peer, threads, build, median_us, p10_us, p90_us, min_us and samples; `shapewise-compare` merges them by
workload and threads. Answers are checked before they are timed.
"""

import argparse
import json
import sys
import time

import numpy as np
import torch

SECONDS = 2.0
"""Time that each contestant is given, within the bounds of SAMPLES."""
SAMPLES = (9, 200)


def timed(call):
    """Microseconds of single calls, sorted."""
    start = time.perf_counter()
    call()
    once = time.perf_counter() - start
    count = int(min(max(SECONDS / max(once, 1e-6), SAMPLES[0]), SAMPLES[1]))
    samples = []
    for _ in range(count):
        start = time.perf_counter_ns()
        call()
        samples.append((time.perf_counter_ns() - start) / 1e3)
    return sorted(samples)


def transpose(n):
    x = np.random.default_rng(1).uniform(-1, 1, (n, n)).astype(np.float32)
    a, out = torch.from_numpy(x), np.empty_like(x)
    b = torch.empty_like(a)
    yield "numpy", lambda: np.copyto(out, x.T), lambda: np.array_equal(out, x.T)
    yield "torch", lambda: b.copy_(a.t()), lambda: torch.equal(b, a.t())


def gather(rows, cols, picks):
    random = np.random.default_rng(1)
    x, index = random.uniform(-1, 1, (rows, cols)).astype(np.float32), random.integers(0, rows, picks)
    out = np.empty((picks, cols), np.float32)
    a, i = torch.from_numpy(x), torch.from_numpy(index)
    b = torch.empty((picks, cols))
    # Any mode but `raise` lets numpy write into the given output without a copy.
    yield "numpy", lambda: np.take(x, index, axis=0, out=out, mode="clip"), lambda: np.array_equal(out, x[index])
    yield "torch", lambda: torch.index_select(a, 0, i, out=b), lambda: torch.equal(b, a[i])


def sort(n):
    x = np.random.default_rng(1).uniform(-1, 1, n).astype(np.float32)
    a, out = torch.from_numpy(x), np.empty_like(x)

    def by_numpy():
        np.copyto(out, x)
        out.sort()

    def ordered():
        return bool((out[1:] >= out[:-1]).all())

    yield "numpy", by_numpy, ordered
    yield "torch", lambda: torch.sort(a), lambda: bool((torch.sort(a).values.diff() >= 0).all())


def topk(n, k):
    x = np.random.default_rng(1).uniform(-1, 1, n).astype(np.float32)
    a, want = torch.from_numpy(x), np.sort(x)[::-1][:k]

    def by_numpy():
        places = np.argpartition(x, n - k)[n - k :]
        places = places[np.argsort(-x[places])]
        return x[places], places

    yield "numpy", by_numpy, lambda: np.array_equal(by_numpy()[0], want)
    yield "torch", lambda: torch.topk(a, k), lambda: np.array_equal(torch.topk(a, k).values.numpy(), want)


def attention(batch, heads, length, width, causal):
    torch.manual_seed(1)
    q, k, v = (torch.rand(batch, heads, length, width) * 2 - 1 for _ in range(3))
    call = lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    def right():
        """The first query of the last head, in f64."""
        scores = (q[-1, -1, 0].double() @ k[-1, -1].double().T) / width**0.5
        weights = torch.softmax(scores[:1] if causal else scores, 0)
        wanted = weights @ v[-1, -1, : len(weights)].double()
        return torch.allclose(call()[-1, -1, 0].double(), wanted, atol=1e-4)

    yield "torch", call, right


WORKLOADS = {
    "transpose/4096": lambda: transpose(4096),
    "gather/1e6x64": lambda: gather(10**6, 64, 10**6),
    "sort/1e7": lambda: sort(10**7),
    "topk/1e7_100": lambda: topk(10**7, 100),
    "topk/1e7_100000": lambda: topk(10**7, 10**5),
    "attention/1x12x512x64": lambda: attention(1, 12, 512, 64, False),
    "attention/1x32x2048x128_causal": lambda: attention(1, 32, 2048, 128, True),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--filter", default="", help="parts of names, comma-separated")
    parser.add_argument("--json", default="-", help="where records go; - is the standard output")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    records = []
    for name, contestants in WORKLOADS.items():
        if not any(part.strip() in name for part in options.filter.split(",")):
            continue
        for peer, call, right in contestants():
            call()
            if not right():
                sys.exit(f"{name}: {peer} gives a wrong answer")
            samples = timed(call)
            at = lambda share: round(samples[min(int(share * len(samples)), len(samples) - 1)], 3)
            records.append({"workload": name, "peer": peer, "threads": options.threads, "build": "wheel", "median_us": at(0.5),
                            "p10_us": at(0.1), "p90_us": at(0.9), "min_us": round(samples[0], 3), "samples": len(samples)})
            print(f"{name:36} {peer:6} {at(0.5):12.1f} µs", file=sys.stderr)
    text = json.dumps(records, indent=1)
    if options.json == "-":
        print(text)
    else:
        with open(options.json, "w") as file:
            file.write(text + "\n")


if __name__ == "__main__":
    main()
