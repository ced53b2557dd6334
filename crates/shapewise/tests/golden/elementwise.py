"""Golden cases of the element-wise functions and of fused chains of them."""

import numpy as np
from scipy.special import erf, erfc

from make import COMPLEX, FLOATS, INTEGERS, NUMPY, apply, cast, wide

SLOPE = 0.1


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    # At -inf the product is 0 times infinity; its limit is 0.
    return np.where(np.isneginf(x), -0.0, np.where(x < 0, 0.5 * x * erfc(-x / np.sqrt(2)), 0.5 * x * (1 + erf(x / np.sqrt(2)))))


UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x: np.where(x > 0, x, x * SLOPE),
    "gelu": gelu,
    "silu": lambda x: np.where(np.isneginf(x), -0.0, x * sigmoid(x)),
    "clamp": lambda x: np.clip(x, -1, 3),
}
ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
EXTREMES = {"min": np.minimum, "max": np.maximum}
COMPARISONS = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
FUSED = {
    "relu(a*b+c)": lambda a, b, c: np.maximum(a * b + c, 0),
    "where(a<b,a,b*2)": lambda a, b, c: np.where(a < b, a, b * 2),
    "tanh(a)*sigmoid(b)-c": lambda a, b, c: np.tanh(a) * sigmoid(b) - c,
    "clamp(a-b,-1,3)/(abs(c)+1)": lambda a, b, c: np.clip(a - b, -1, 3) / (np.abs(c) + 1),
    "f64(a)+f64(b)*f64(c)": lambda a, b, c: a + b * c,
}


def divide(a, b):
    """Integers: towards zero, by zero gives 0, the one overflowing quotient wraps."""
    divisor = np.where(b == 0, 1, b).astype(object)
    quotient = np.abs(a.astype(object)) // np.abs(divisor) * (np.sign(a.astype(object)) * np.sign(divisor))
    info = np.iinfo(a.dtype)
    wrapped = (quotient - info.min) % (info.max - info.min + 1) + info.min
    return np.where(b == 0, 0, wrapped).astype(a.dtype)


def function(file, name, operation, inputs, result, dtype, views=None, **more):
    """Inputs are (values, dtype); the result is already computed."""
    views = views or [()] * len(inputs)
    stored = [(v, d, view) for (v, d), view in zip(inputs, views)]
    file.case(f"{operation} {name} {inputs[-1][1]}", {"function": operation, **more}, stored, [(result, dtype)])


def unary(file, dtype):
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 0.5, 2.0, 1e-3, -1e-3, 20.0, -20.0, 60.0, -60.0]
    if dtype in ("f32", "f64"):
        special += [88.0, -88.0, 104.0, -104.0, 1e-30, 1000.0, -1000.0, 1e30, 1e-40]
    if dtype == "f64":
        special += [709.0, -709.0, -745.0, 1e300, 1e-310]
    for name, f in UNARY.items():
        x = file.draw(dtype, (23,), -6, 6)
        function(file, "numbers", name, [(x, dtype)], f(wide(x)), dtype)
        # Sine and cosine of huge numbers need hundreds of bits of pi: kernels state their range instead.
        edges = cast([v for v in special if not (name in ("sin", "cos") and abs(v) > 1e4 and np.isfinite(v))], dtype)
        function(file, "edges", name, [(edges, dtype)], f(wide(edges)), dtype)


def binary(file, dtype):
    a, b = file.draw(dtype, (4, 9)), file.draw(dtype, (4, 9))
    row, column = file.draw(dtype, (9,)), file.draw(dtype, (4, 1))
    long = file.draw(dtype, (67,), 0.5, 4.0)
    for name, f in {**ARITHMETIC, **EXTREMES}.items():
        function(file, "same shape", name, [(a, dtype), (b, dtype)], f(wide(a), wide(b)), dtype)
        if name not in ("add", "div"):
            continue  # layouts do not depend on the function
        function(file, "row", name, [(a, dtype), (row, dtype)], f(wide(a), wide(row)), dtype)
        function(file, "outer", name, [(column, dtype), (row, dtype)], f(wide(column), wide(row)), dtype)
        views = [[("transpose",)], [("slice", 0, 0, 9, -1)]]
        x, y = apply(wide(a), views[0]), apply(wide(row), views[1]).reshape(9, 1)
        stored = [(a, dtype), (row.reshape(9, 1), dtype)]
        function(file, "transposed and backwards", name, stored, f(x, y), dtype, views)
        function(file, "long", name, [(long, dtype), (long[::-1].copy(), dtype)], f(wide(long), wide(long)[::-1]), dtype)
    edges = cast([0.0, -0.0, 1.0, np.inf, -np.inf, np.nan, -2.5], dtype)
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    for name, f in {**ARITHMETIC, **EXTREMES, **COMPARISONS}.items():
        result = "bool" if name in COMPARISONS else dtype
        function(file, "every pair of edges", name, [(x, dtype), (y, dtype)], f(wide(x), wide(y)), result)
    base, power = file.draw(dtype, (21,), 0.1, 3.0), file.draw(dtype, (21,), -3, 3)
    function(file, "numbers", "pow", [(base, dtype), (power, dtype)], wide(base) ** wide(power), dtype)
    function(file, "every pair of edges", "pow", [(x, dtype), (y, dtype)], wide(x) ** wide(y), dtype)


def integer(file, dtype):
    info = np.iinfo(NUMPY[dtype])
    edges = np.array([info.min, 0, 1, 3, 7, info.max - 1, info.max], NUMPY[dtype])
    if info.min < 0:
        edges = np.concatenate([edges, np.array([-1, -2], NUMPY[dtype])])
    x, y = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    for name, f in {**ARITHMETIC, "div": divide, **EXTREMES, **COMPARISONS}.items():
        result = "bool" if name in COMPARISONS else dtype
        function(file, "every pair of edges", name, [(x, dtype), (y, dtype)], f(x, y), result)
    for name in ["abs", "relu", "clamp"] + (["neg"] if info.min < 0 else []):
        low = -1 if info.min < 0 else 1
        f = (lambda x: np.clip(x, low, 3)) if name == "clamp" else UNARY[name]
        function(file, "edges", name, [(edges, dtype)], f(edges), dtype, constants=[low, 3])


def complex_numbers(file, dtype):
    a, b, row = file.draw(dtype, (3, 7)), file.draw(dtype, (3, 7), 0.5, 2.0), file.draw(dtype, (7,), 0.5, 2.0)
    for name, f in ARITHMETIC.items():
        function(file, "same shape", name, [(a, dtype), (b, dtype)], f(wide(a), wide(b)), dtype)
        function(file, "row", name, [(a, dtype), (row, dtype)], f(wide(a), wide(row)), dtype)
    for name in ("equal", "not_equal"):
        mixed = np.where(np.arange(7) % 2 == 0, a, b)
        function(file, "same shape", name, [(a, dtype), (mixed, dtype)], COMPARISONS[name](a, mixed), "bool")
    function(file, "numbers", "neg", [(a, dtype)], -wide(a), dtype)
    function(file, "magnitude", "abs", [(a, dtype)], np.abs(wide(a)), {"c32": "f32", "c64": "f64"}[dtype])


def casts(file):
    """Floats to integers truncate and saturate, NaN gives 0; integers wrap; anything to bool is `x != 0`."""
    for source in NUMPY:
        x = file.draw(source, (9,), -6, 6)
        if source in FLOATS:
            x = np.concatenate([x, cast([np.nan, np.inf, -np.inf, 300.7, -300.7, 0.0, -0.9], source)])
        if source in INTEGERS:
            info = np.iinfo(NUMPY[source])
            x = np.concatenate([x, np.array([info.min, info.max], NUMPY[source])])
        for to in NUMPY:
            function(file, f"to {to}", "cast", [(x, source)], converted(x, source, to), to, to=to)


def converted(x, source, to):
    real = x.real if source in COMPLEX else x
    if to == "bool":
        return x != 0
    if to in INTEGERS and (source in FLOATS or source in COMPLEX):
        info = np.iinfo(NUMPY[to])
        inside = [0 if np.isnan(v) else min(max(v, info.min), info.max) for v in wide(real).tolist()]
        return np.array([int(v) for v in inside], dtype=object).astype(NUMPY[to])
    if to in INTEGERS:
        return real.astype(np.int64).astype(NUMPY[to])
    if to in COMPLEX:
        return x.astype(np.complex128)
    return real.astype(np.float64)


def cases(file):
    for dtype in FLOATS:
        unary(file, dtype)
        binary(file, dtype)
        a, b, c = (file.draw(dtype, (3, 11)) for _ in range(3))
        for name, f in FUSED.items():
            inputs = [(a, dtype), (b, dtype), (c, dtype)]
            function(file, "fused", name, inputs, f(wide(a), wide(b), wide(c)), "f64" if "f64" in name else dtype)
        function(file, "broadcast", "relu(a*b+c)", [(a, dtype), (b[:1], dtype), (c[:, :1], dtype)],
                 FUSED["relu(a*b+c)"](wide(a), wide(b[:1]), wide(c[:, :1])), dtype)
    for dtype in INTEGERS:
        integer(file, dtype)
    for dtype in COMPLEX:
        complex_numbers(file, dtype)
    for dtype in NUMPY:
        condition = file.random.random((3, 1)) < 0.5
        a, b = file.draw(dtype, (3, 5)), file.draw(dtype, (5,))
        function(file, "broadcast", "where", [(condition, "bool"), (a, dtype), (b, dtype)], np.where(condition, a, b), dtype)
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    for name, f in {"min": np.logical_and, "max": np.logical_or, **COMPARISONS}.items():
        function(file, "truth values", name, [(x, "bool"), (y, "bool")], f(x, y), "bool")
    empty = file.draw("f32", (0, 3))
    function(file, "no elements", "add", [(empty, "f32"), (file.draw("f32", (3,)), "f32")], wide(empty), "f32")
    function(file, "scalars", "mul", [(np.float32(2), "f32"), (np.float32(3.5), "f32")], np.float64(7), "f32")
