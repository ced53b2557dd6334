"""Golden cases of the reductions."""

import math

import numpy as np

from make import COMPLEX, FLOATS, INTEGERS, NUMPY, apply, cast, wide

EXACT = [*INTEGERS, "bool"]
ORDERS = {"0": 0, "1": 1, "2": 2, "inf": np.inf, "-inf": -np.inf, "3": 3, "0.5": 0.5}


def result_type(kind, dtype):
    if kind in ("argmax", "argmin"):
        return "i64"
    if kind in ("any", "all"):
        return "bool"
    if kind in ("sum", "prod", "cumsum"):
        return "i64" if dtype in EXACT else dtype
    if kind in ("mean", "variance"):
        return "f64" if dtype in EXACT else dtype
    if kind == "norm":
        return {"c32": "f32", "c64": "f64"}.get(dtype, "f64" if dtype in EXACT else dtype)
    return dtype


def norm(x, order, axes, keepdims):
    size = np.abs(x.astype(np.complex128 if x.dtype.kind == "c" else np.float64))
    if order == np.inf:
        return size.max(axis=axes, keepdims=keepdims)
    if order == -np.inf:
        return size.min(axis=axes, keepdims=keepdims)
    if order == 0:
        return (size != 0).sum(axis=axes, keepdims=keepdims).astype(np.float64)
    return (size**order).sum(axis=axes, keepdims=keepdims) ** (1 / order)


def flattened(x, axes):
    """The reduced axes, merged in row-major order, as the last one."""
    kept = [i for i in range(x.ndim) if i not in axes]
    return x.transpose([*kept, *axes]).reshape([x.shape[i] for i in kept] + [math.prod(x.shape[i] for i in axes)])


def compute(kind, x, axes, keepdims, attributes):
    over = tuple(axes)
    integral = x.dtype.kind in "iub"
    if kind in ("sum", "prod"):
        values = x.astype(np.int64) if integral else wide(x)
        return getattr(values, kind)(axis=over, keepdims=keepdims)
    if kind == "mean":
        return wide(x).astype(np.complex128 if x.dtype.kind == "c" else np.float64).mean(axis=over, keepdims=keepdims)
    if kind == "variance":
        return wide(x).astype(np.float64).var(axis=over, keepdims=keepdims, ddof=attributes["correction"])
    if kind in ("max", "min"):
        return getattr(x, kind)(axis=over, keepdims=keepdims)
    if kind in ("any", "all"):
        return getattr(x != 0, kind)(axis=over, keepdims=keepdims)
    if kind == "norm":
        return norm(x, ORDERS[attributes["order"]], over, keepdims)
    if kind == "cumsum":
        values = x.astype(np.int64) if integral else wide(x)
        return values.cumsum(axis=axes[0])
    result = getattr(flattened(x, axes), kind)(axis=-1)
    return np.expand_dims(result, over) if keepdims else result


def reduction(file, name, kind, dtype, x, axes, keepdims=False, view=(), **more):
    """Axes may be negative; the case keeps them as they are."""
    operand = apply(x, view)
    resolved = sorted(a % operand.ndim for a in axes)
    attributes = {"kind": kind, "axes": list(axes), "keepdims": keepdims, **more}
    result = compute(kind, operand, resolved, keepdims, attributes)
    file.case(f"{kind} {name} {dtype}", attributes, [(x, dtype, view)], [(result, result_type(kind, dtype))])


def kinds_for(dtype):
    kinds = [("sum", {}), ("mean", {}), ("prod", {}), ("any", {}), ("all", {}), ("norm", {"order": "2"})]
    if dtype not in COMPLEX:
        kinds += [("max", {}), ("min", {}), ("argmax", {}), ("argmin", {})]
        kinds += [("variance", {"correction": 0}), ("variance", {"correction": 1})]
    return kinds


def ordinary(file, dtype):
    # Layouts do not depend on the type, so that not every pair of them needs a case.
    every_layout = dtype in ("f32", "i32", "c32")
    for kind, more in kinds_for(dtype):
        draw = lambda shape: file.draw(dtype, shape, 0.5, 1.5) if kind == "prod" else file.draw(dtype, shape)
        reduction(file, "rows", kind, dtype, draw((3, 9)), [-1], **more)
        reduction(file, "columns", kind, dtype, draw((9, 4)), [0], keepdims=True, **more)
        if not every_layout:
            continue
        reduction(file, "all", kind, dtype, draw((3, 7)), [0, 1], **more)
        reduction(file, "outer axes", kind, dtype, draw((2, 3, 4)), [0, 2], keepdims=True, **more)
        reduction(file, "middle axis", kind, dtype, draw((2, 5, 3)), [1], **more)
        reduction(file, "strided", kind, dtype, draw((6, 8)), [1], view=[("transpose",), ("slice", 1, 0, 6, -2)], **more)
        reduction(file, "broadcast", kind, dtype, draw((4, 1)), [1], view=[("broadcast", [4, 3])], **more)
        reduction(file, "one element", kind, dtype, draw((1, 1)), [0, 1], **({"correction": 0} if more.get("correction") else more))
        if kind not in ("max", "min", "argmax", "argmin"):
            reduction(file, "no elements", kind, dtype, draw((3, 0)), [1], **more)
        reduction(file, "no results", kind, dtype, draw((0, 3)), [1], **more)
    for order in ORDERS:
        reduction(file, f"order {order}", "norm", dtype, file.draw(dtype, (2, 11)), [1], order=order)
    reduction(file, "last axis", "cumsum", dtype, file.draw(dtype, (3, 13)), [1])
    reduction(file, "first axis", "cumsum", dtype, file.draw(dtype, (7, 4)), [0])
    reduction(file, "middle axis, backwards", "cumsum", dtype, file.draw(dtype, (2, 5, 3)), [-2], view=[("slice", 1, 0, 5, -1)])


def special_floats(file, dtype):
    x = file.draw(dtype, (5, 8))
    x[0, 3], x[1, 2], x[1, 6] = np.nan, np.nan, np.nan
    x[2, 1], x[3, 4], x[3, 5], x[4, 7] = np.inf, np.inf, -np.inf, -np.inf
    for kind, more in kinds_for(dtype):
        if kind not in ("prod",):
            reduction(file, "not a number and infinities", kind, dtype, x, [1], **more)
    reduction(file, "not a number and infinities", "cumsum", dtype, x, [1])
    for order in ("0", "1", "2", "inf", "-inf", "3"):
        reduction(file, f"special, order {order}", "norm", dtype, x, [1], order=order)
    ties = cast(np.array([[1, 3, 3, 0, 0], [-0.0, 0.0, -0.0, 0.0, -1], [2, 2, 2, 2, 2]]), dtype)
    reduction(file, "ties", "argmax", dtype, ties, [1])
    reduction(file, "ties", "argmin", dtype, ties, [1])
    reduction(file, "ties over all", "argmax", dtype, ties, [0, 1])
    far = cast(1000 + file.random.uniform(-1, 1, (2, 50)), dtype)
    reduction(file, "far from zero", "variance", dtype, far, [1], correction=0)
    reduction(file, "constant", "variance", dtype, cast(np.full((2, 9), 3.25), dtype), [1], correction=1)


def accuracy(file):
    big = np.ones(2049, dtype=np.float32)
    big[0] = 2.0**24
    reduction(file, "small beside big", "sum", "f32", big, [0])
    reduction(file, "halves that overflow in f16", "mean", "f16", cast(np.full(40, 60000.0), "f16"), [0])
    reduction(file, "squares that overflow", "norm", "f32", cast([3e30, 4e30], "f32"), [0], order="2")
    reduction(file, "squares that vanish", "norm", "f32", cast([3e-30, 4e-30], "f32"), [0], order="2")
    reduction(file, "many ones", "sum", "bf16", cast(np.ones(1000), "bf16"), [0])
    reduction(file, "many ones", "sum", "f16", cast(np.ones(3000), "f16"), [0])


def wrapping(file):
    i64 = np.iinfo(np.int64)
    reduction(file, "wraps", "sum", "i64", np.array([i64.max, 1, 5]), [0])
    reduction(file, "wraps", "prod", "i64", np.array([i64.max, 3, -7]), [0])
    reduction(file, "wraps", "cumsum", "i64", np.array([i64.max, 1, 5]), [0])
    reduction(file, "does not wrap", "sum", "u8", np.full(300, 255, np.uint8), [0])
    reduction(file, "does not wrap", "sum", "u32", np.full(5, 2**32 - 1, np.uint32), [0])
    reduction(file, "does not wrap", "prod", "i8", np.array([-128, -128, 3], np.int8), [0])
    for dtype in INTEGERS:
        info = np.iinfo(NUMPY[dtype])
        ends = np.array([[info.max, info.min, 0, info.max], [info.min, info.min, info.max, 1]], NUMPY[dtype])
        for kind in ("max", "min", "argmax", "argmin"):
            reduction(file, "extremes and ties", kind, dtype, ends, [1])


def cases(file):
    for dtype in [*FLOATS, *EXACT, *COMPLEX]:
        ordinary(file, dtype)
    for dtype in FLOATS:
        special_floats(file, dtype)
    accuracy(file)
    wrapping(file)
    scans(file)


SCANS = {"cumsum": np.add, "cumprod": np.multiply, "cummax": np.maximum, "cummin": np.minimum}


def scans(file):
    """Products, extremes, and results without the element itself; plain sums are above."""
    for dtype in [*FLOATS, *EXACT, *COMPLEX]:
        x = file.draw(dtype, (2, 9))
        if dtype in FLOATS:
            x[1, 3] = np.nan
        integral = dtype in EXACT
        for kind, function in SCANS.items():
            extreme = kind in ("cummax", "cummin")
            if dtype in COMPLEX and extreme:
                continue
            result = dtype if extreme or not integral else "i64"
            values = x.astype(np.int64) if integral else wide(x)
            inclusive = function.accumulate(values, axis=1)
            if extreme and integral:
                info = np.iinfo(NUMPY[dtype]) if dtype != "bool" else None
                low, high = (info.min, info.max) if info else (0, 1)
            else:
                low, high = -np.inf, np.inf
            first = {"cumsum": 0, "cumprod": 1, "cummax": low, "cummin": high}[kind]
            exclusive = np.concatenate([np.full((2, 1), first, inclusive.dtype), inclusive[:, :-1]], axis=1)
            for flag, values in [(False, inclusive), (True, exclusive)]:
                attributes = {"kind": kind, "axes": [1], "keepdims": False, "exclusive": flag}
                file.case(f"{kind} {'exclusive' if flag else 'inclusive'} {dtype}", attributes, [(x, dtype)], [(values, result)])
