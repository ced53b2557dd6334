"""Times Shapewise's Python module and Python's libraries on the same work, in one process, in turns.

    python interleaved.py --threads 2 --filter conv,fft

Needs shapewise and numpy; torch, onnxruntime (with onnx), scipy, mkl_fft and pyfftw take part where they are installed, oneDNN where
PEERBENCH_DNNL names its library. Answers are compared
before anyone is timed. Each round takes a sample of every contestant, in an order that changes from round to round; a ratio is the
median over the rounds of the ratio within a round, above 1 where Shapewise is faster. Short calls are repeated until a sample lasts
2.5 ms. onnxruntime packs weights when its session is made, so its convolutions and recurrent layers are compared with our packed ones. With several
threads a turn begins when no thread of the process spins any more.
"""

import argparse
import ctypes
import importlib
import json
import os
import statistics
import sys
import time
from pathlib import Path

import numpy as np

import shapewise as sw

SAMPLE = 2.5e-3
ROUNDS = 21
PACKED = "our packed"
MOST_SECONDS = 20.0
"""A case ends after so long, but not before five rounds."""


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch, ort, onnx = optional("torch"), optional("onnxruntime"), optional("onnx")
mkl_fft, pyfftw, scipy_sparse = optional("mkl_fft"), optional("pyfftw"), optional("scipy.sparse")
if onnx:
    from onnx import helper, numpy_helper


def numbers(*shape, seed=1):
    return np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)


class Contest:
    """The contestants of one workload: `add(name, call)`, where the call gives the answer."""

    def __init__(self, runtime, threads):
        self.rt, self.threads, self.calls, self.reads = runtime, threads, {}, {}

    def add(self, name, call, read=np.asarray):
        self.calls[name], self.reads[name] = call, read

    def torch(self, call, *arrays, read=np.asarray):
        """A call that gets the arrays as tensors of torch."""
        if torch:
            tensors = [torch.from_numpy(array) for array in arrays]
            self.add("torch", lambda: call(*tensors), read)

    def onnx(self, operator, inputs, constants=(), result="float32", domain="", **attributes):
        """One operator by onnxruntime; constants are known when the session is made, as weights are."""
        if not (ort and onnx):
            return
        names = [f"x{i}" for i in range(len(inputs))]
        fixed = [f"w{i}" for i in range(len(constants))]
        kind = lambda dtype: helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        infos = [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in zip(names, inputs)]
        outcome = helper.make_tensor_value_info("y", kind(result), None)
        weights = [numpy_helper.from_array(x, n) for n, x in zip(fixed, constants)]
        node = helper.make_node(operator, names + fixed, ["y"], domain=domain, **attributes)
        graph = helper.make_graph([node], "one", infos, [outcome], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)], ir_version=9)
        options = ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feed = dict(zip(names, inputs))
        self.add("ort", lambda: session.run(None, feed)[0])


def matmul(c, w):
    batch = (w["batch"],) if "batch" in w else ()
    a, turned = numbers(*batch, w["m"], w["k"]), w.get("tb", False)
    b = numbers(*batch, *((w["n"], w["k"]) if turned else (w["k"], w["n"])), seed=2)
    b = b.swapaxes(-1, -2) if turned else b
    c.add("shapewise", lambda: c.rt.matmul(a, b))
    c.add("numpy", lambda: a @ b)
    c.torch(lambda a, b: a @ b, a, b)


def elementwise(c, w):
    a, b = numbers(w["n"]), numbers(w["n"], seed=2)
    if w["op"] == "add":
        c.add("shapewise", lambda: c.rt.add(a, b))
        c.add("numpy", lambda: a + b)
        c.torch(lambda a, b: a + b, a, b)
    elif w["op"] == "mul":
        c.add("shapewise", lambda: c.rt.mul(a, b))
        c.add("numpy", lambda: a * b)
        c.torch(lambda a, b: a * b, a, b)
    elif w["op"] == "relu":
        c.add("shapewise", lambda: c.rt.relu(a))
        c.add("numpy", lambda: np.maximum(a, 0))
        c.torch(lambda a: torch.relu(a), a)


def reduce(c, w):
    x = numbers(w["rows"], w["cols"])
    axis = {"all": None, "row": 1, "col": 0}[w["op"]]
    c.add("shapewise", lambda: c.rt.sum(x, axis))
    c.add("numpy", lambda: x.sum(axis))
    c.torch(lambda x: x.sum() if axis is None else x.sum(axis), x)


def softmax(c, w):
    x = numbers(w["rows"], w["cols"])
    c.add("shapewise", lambda: c.rt.softmax(x))
    c.torch(lambda x: torch.softmax(x, -1), x)
    c.onnx("Softmax", [x], axis=-1)


def batchnorm(c, w):
    x = numbers(w["b"], w["c"], w["h"], w["w"])
    scale, bias, mean, var = (numbers(w["c"], seed=seed) for seed in (2, 3, 4, 5))
    var = np.abs(var) + 0.5
    c.add("shapewise", lambda: c.rt.batch_norm(x, mean, var, scale, bias))
    c.torch(lambda *t: torch.nn.functional.batch_norm(*t), x, mean, var, scale, bias)
    c.onnx("BatchNormalization", [x], [scale, bias, mean, var])


def layernorm(c, w):
    x, scale, bias = numbers(w["rows"], w["cols"]), numbers(w["cols"], seed=2), numbers(w["cols"], seed=3)
    c.add("shapewise", lambda: c.rt.layer_norm(x, -1, scale, bias))
    c.torch(lambda x, s, b: torch.nn.functional.layer_norm(x, s.shape, s, b), x, scale, bias)
    c.onnx("LayerNormalization", [x], [scale, bias])


def attention(c, w):
    q, k, v = (numbers(1, w["heads"], w["length"], w["dim"], seed=seed) for seed in (1, 2, 3))
    causal = w.get("causal", False)
    c.add("shapewise", lambda: c.rt.attention(q, k, v, causal=causal))
    c.torch(lambda *t: torch.nn.functional.scaled_dot_product_attention(*t, is_causal=causal), q, k, v)


def conv(c, w):
    x = numbers(w["b"], w["cin"], w["h"], w["w"])
    weights = numbers(w["cout"], w["cin"] // w["groups"], w["kh"], w["kh"], seed=2)
    stride, pad, groups = w["stride"], w["pad"], w["groups"]
    c.add("shapewise", lambda: c.rt.conv2d(x, weights, None, stride, pad, 1, groups))
    packed = c.rt.pack_conv(weights, x, stride, pad, 1, groups)
    c.add(PACKED, lambda: c.rt.conv_packed(x, packed, None, stride, pad, 1, groups))
    c.torch(lambda x, k: torch.nn.functional.conv2d(x, k, None, stride, pad, 1, groups), x, weights)
    c.onnx("Conv", [x], [weights], strides=[stride] * 2, pads=[pad] * 4, group=groups)


def transpose(c, w):
    x = numbers(w["n"], w["n"])
    c.add("shapewise", lambda: c.rt.transpose(x))
    c.add("numpy", lambda: np.ascontiguousarray(x.T))
    c.torch(lambda x: x.t().contiguous(), x)


def gather(c, w):
    x, index = numbers(w["rows"], w["cols"]), np.random.default_rng(2).integers(0, w["rows"], w["picks"])
    c.add("shapewise", lambda: c.rt.take(x, index))
    c.add("numpy", lambda: np.take(x, index, axis=0))
    c.torch(lambda x, i: torch.index_select(x, 0, i), x, index)


def sort(c, w):
    x = numbers(w["n"])
    c.add("shapewise", lambda: c.rt.sort(x))
    c.add("numpy", lambda: np.sort(x))
    c.torch(lambda x: torch.sort(x)[0], x)


def topk(c, w):
    x, k = numbers(w["n"]), w["k"]
    c.add("shapewise", lambda: c.rt.topk(x, k)[0])
    c.add("numpy", lambda: -np.sort(np.partition(-x, k - 1)[:k]))
    c.torch(lambda x: torch.topk(x, k)[0], x)


def fft(c, w):
    real = numbers(w["batch"], w["n"]) if w["batch"] > 1 else numbers(w["n"])
    x = real if w["op"] == "r2c" else (real + 1j * numbers(*real.shape, seed=2)).astype(np.complex64)
    call = {"c2c": "fft", "2d": "fft2", "r2c": "rfft"}[w["op"]]
    ours = getattr(c.rt.fft, call)
    c.add("shapewise", lambda: ours(x))
    if torch:
        c.torch(getattr(torch.fft, call), x)
    if mkl_fft:
        theirs = getattr(mkl_fft, call)
        c.add("mkl", lambda: theirs(x))
    if pyfftw:
        # FFTW's plans own their arrays: input and result stay where they are, as its users arrange it.
        plan = getattr(pyfftw.builders, call)(x, threads=c.threads, planner_effort="FFTW_MEASURE")
        plan.input_array[...] = x
        c.add("fftw", plan)


def rnn(c, w):
    inputs, hidden = w["in"], w["hidden"]
    gates = {"lstm": 4, "gru": 3}[w["op"]]
    x, bound = numbers(w["seq"], w["b"], inputs), np.float32(hidden**-0.5)
    shapes = [(gates * hidden, inputs), (gates * hidden, hidden), (gates * hidden,), (gates * hidden,)]
    params = [numbers(*shape, seed=2 + i) * bound for i, shape in enumerate(shapes)]
    ours, packed = getattr(c.rt, w["op"]), c.rt.pack_rnn(params, w["op"])
    c.add("shapewise", lambda: ours(x, params)[0])
    c.add(PACKED, lambda: ours(x, packed)[0])
    if torch:
        module = getattr(torch.nn, w["op"].upper())(inputs, hidden)
        with torch.no_grad():
            for parameter, array in zip(module.parameters(), params):
                parameter.copy_(torch.from_numpy(array))

        def theirs(x):
            with torch.no_grad():
                return module(x)[0]

        c.torch(theirs, x)
    # ONNX orders the gates i, o, f, c and z, r, h, and has an axis for the directions.
    order = {"lstm": [0, 3, 1, 2], "gru": [1, 0, 2]}[w["op"]]
    turn = lambda array: np.concatenate([np.split(array, gates)[i] for i in order])[None]
    biases = np.concatenate([turn(params[2]), turn(params[3])], axis=1)
    extra = {"linear_before_reset": 1} if w["op"] == "gru" else {}
    c.onnx(w["op"].upper(), [x], [turn(params[0]), turn(params[1]), biases], hidden_size=hidden, **extra)
    if "ort" in c.calls:
        call = c.calls["ort"]
        c.add("ort", lambda: call()[:, 0])


def sparse(c, w):
    n, each = w["n"], w["nnz_row"]
    rng = np.random.default_rng(1)
    # Sorted numbers with steps added are distinct, which torch insists on.
    columns, offsets = np.sort(rng.integers(0, n - each + 1, (n, each))) + np.arange(each), np.arange(n + 1) * each
    values, x = numbers(n * each), numbers(n, w["cols"], seed=2) if w["cols"] > 1 else numbers(n, seed=2)
    ours = c.rt.sparse.csr((values, columns.ravel(), offsets), shape=(n, n))
    c.add("shapewise", lambda: ours @ x)
    if scipy_sparse:
        theirs = scipy_sparse.csr_matrix((values, columns.ravel(), offsets), shape=(n, n))
        c.add("scipy", lambda: theirs @ x)
    if torch:
        parts = [torch.from_numpy(part) for part in (offsets, columns.ravel().copy(), values)]
        matrix = torch.sparse_csr_tensor(*parts, size=(n, n), check_invariants=True)
        c.torch(lambda x: matrix @ x, x)


def onednn_integer(threads):
    """oneDNN's product of u8 and s8 (built for gomp), or None where PEERBENCH_DNNL does not say where it is."""
    if "PEERBENCH_DNNL" not in os.environ:
        return None
    ctypes.CDLL("libgomp.so.1").omp_set_num_threads(threads)
    call = ctypes.CDLL(os.environ["PEERBENCH_DNNL"]).dnnl_gemm_u8s8s32
    letter, size, number, at = ctypes.c_char, ctypes.c_int64, ctypes.c_float, ctypes.c_void_p
    left = [number, at, size, ctypes.c_uint8]
    call.argtypes = [letter] * 3 + [size] * 3 + left + [at, size, ctypes.c_int8, number, at, size, at]
    return call


def int8mm(c, w):
    rng = np.random.default_rng(1)
    # Seven bits: without VNNI instructions onnxruntime's sums of pairs saturate beyond, and its answers are wrong.
    a, b = rng.integers(0, 128, (w["m"], w["k"]), "uint8"), rng.integers(-128, 128, (w["k"], w["n"]), "int8")
    c.add("shapewise", lambda: c.rt.matmul_integer(a, b))
    c.onnx("MatMulInteger", [a], [b], result="int32")
    product = onednn_integer(c.threads)
    if product:
        (m, k), n = a.shape, b.shape[1]
        out, offset = np.empty((m, n), np.int32), np.zeros(1, np.int32)
        places = [array.ctypes.data for array in (a, b, out, offset)]

        def theirs():
            letters, (left, right, to, shift) = (b"N", b"N", b"F"), places
            failed = product(*letters, m, n, k, 1.0, left, k, 0, right, n, 0, 0.0, to, n, shift)
            assert not failed, f"oneDNN refuses the product with status {failed}"
            return out

        c.add("onednn", theirs)
    wide, other = a.astype(np.float32), b.astype(np.float32)
    c.add("our f32", lambda: c.rt.matmul(wide, other))


def int4mm(c, w):
    m, k, n, block = w["m"], w["k"], w["n"], 32
    rng = np.random.default_rng(1)
    x, q = numbers(m, k), rng.integers(-8, 8, (n, k), "int8")
    scale = rng.uniform(0.01, 0.2, (n, k // block)).astype(np.float32)
    pairs = (q[:, 0::2] & 15 | q[:, 1::2] << 4).astype(np.uint8)
    weights = c.rt.pack_quantized(pairs, scale, dtype="int4", block_size=block)
    c.add("shapewise", lambda: c.rt.matmul_quantized(x, weights))
    wide = (q * np.repeat(scale, block, axis=1)).T
    c.add("our f32", lambda: c.rt.matmul(x, wide))
    # Without sign and around 8, sixteen bytes for each block.
    unsigned = ((q[:, 0::2] + 8) | (q[:, 1::2] + 8) << 4).astype(np.uint8).reshape(n, k // block, block // 2)
    attributes = {"K": k, "N": n, "bits": 4, "block_size": block}
    c.onnx("MatMulNBits", [x], [unsigned, scale.ravel()], domain="com.microsoft", **attributes)


def quant(c, w):
    scale, zero = np.float32(0.013), np.int8(3)
    x = numbers(w["n"])
    if w["op"] == "quantize":
        c.add("shapewise", lambda: c.rt.quantize(x, scale, zero))
        c.onnx("QuantizeLinear", [x], [scale, zero], result="int8")
        call = lambda x: torch.quantize_per_tensor(x, float(scale), int(zero), torch.qint8)
        c.torch(call, x, read=lambda y: y.int_repr().numpy())
    else:
        q = c.rt.quantize(x, scale, zero)
        c.add("shapewise", lambda: c.rt.dequantize(q, scale, zero))
        c.onnx("DequantizeLinear", [q], [scale, zero])
        if torch:
            held = torch._make_per_tensor_quantized_tensor(torch.from_numpy(q), float(scale), int(zero))
            c.add("torch", lambda: held.dequantize())


KINDS = {
    kind.__name__: kind
    for kind in (
        *(matmul, elementwise, reduce, softmax, batchnorm, layernorm, attention),
        *(conv, transpose, gather, sort, topk, fft, rnn, sparse, int8mm, int4mm, quant),
    )
}


def runs(task):
    """Whether a thread runs now; the process's clock would know a tick too late."""
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] == "R"
    except OSError:  # it has ended
        return False


def still():
    """Waits, for three seconds at most, until no other thread of this process spins: three looks in a row."""
    looks, end = 0, time.perf_counter() + 3
    while looks < 3 and time.perf_counter() < end:
        time.sleep(1e-3)
        others = sum(map(runs, Path("/proc/self/task").iterdir())) - 1
        looks = 0 if others else looks + 1


def sample(call, repeats):
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def differ(answers):
    """Who differs from Shapewise by more than f32 explains; integers by more than a rounding of one in a thousand."""
    ours = answers["shapewise"]
    if ours.dtype == np.int8:
        apart = {name: np.abs(y.astype(np.int16) - ours) for name, y in answers.items()}
        return [name for name, gap in apart.items() if gap.max() > 1 or gap.mean() > 1e-3]
    scale = float(np.abs(ours).max()) or 1.0
    return [name for name, y in answers.items() if not np.allclose(y, ours, rtol=2e-3, atol=2e-4 * scale)]


def race(calls, threads):
    """Seconds of each contestant in each round."""
    repeats = {}
    for name, call in calls.items():
        for _ in range(40):  # Shapewise's first calls are its trials, as everybody's are warm-ups.
            once = sample(call, 1)
            if once > 0.05:
                break
        repeats[name] = max(1, round(SAMPLE / max(once, 1e-7)))
    rounds, names, start = [], list(calls), time.perf_counter()
    while len(rounds) < ROUNDS and (len(rounds) < 5 or time.perf_counter() - start < MOST_SECONDS):
        shift, turn = len(rounds) % len(names), {}
        for name in names[shift:] + names[:shift]:
            if threads > 1:
                still()
            calls[name]()
            turn[name] = sample(calls[name], repeats[name])
        rounds.append(turn)
    return rounds


def judge(contest, workload):
    """Checks, races and prints one workload; gives the ratio to the fastest peer."""
    for name in differ({name: contest.reads[name](call()) for name, call in contest.calls.items()}):
        print(f"{workload['name']}: {name} gives another answer and is not timed", file=sys.stderr)
        del contest.calls[name]
    rounds = race(contest.calls, contest.threads)
    peers = [name for name in contest.calls if name not in ("shapewise", PACKED)]
    ours = {name: PACKED if name == "ort" and PACKED in contest.calls else "shapewise" for name in peers}
    ratios = {name: statistics.median(r[name] / r[ours[name]] for r in rounds) for name in peers}
    microseconds = statistics.median(r["shapewise"] for r in rounds) * 1e6
    told = "  ".join(f"{name} {ratio:.2f}x" for name, ratio in sorted(ratios.items(), key=lambda item: item[1]))
    if PACKED in contest.calls:
        told += f"  (packed {statistics.median(r[PACKED] for r in rounds) * 1e6:.1f} us)"
    print(f"{workload['name']:<32} {microseconds:>12.1f} us   {told}", flush=True)
    return min((ratio for name, ratio in ratios.items() if not name.startswith("our ")), default=None)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--filter", default="", help="only workloads whose name contains one of these parts, comma separated")
    parser.add_argument("--workloads", type=Path, default=Path(__file__).parent.parent / "workloads.json")
    options = parser.parse_args()
    if torch:
        torch.set_num_threads(options.threads)
    if mkl := optional("mkl"):
        mkl.set_num_threads(options.threads)
    runtime = sw.Runtime(threads=options.threads)
    parts, best = options.filter.split(","), {}
    for workload in json.loads(options.workloads.read_text()):
        contest = Contest(runtime, options.threads)
        if workload["kind"] in KINDS and any(part in workload["name"] for part in parts):
            KINDS[workload["kind"]](contest, workload)
        if len(contest.calls) > 1 and (ratio := judge(contest, workload)) is not None:
            best.setdefault(workload["kind"], []).append(ratio)
    for kind, ratios in best.items():
        print(f"{kind}: geometric mean {statistics.geometric_mean(ratios):.2f}x the fastest of each, {options.threads} threads")


if __name__ == "__main__":
    main()
