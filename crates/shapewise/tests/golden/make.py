"""Makes the golden files from numpy, scipy, torch and the operator definitions of ONNX: `python make.py`, in this folder.

One file per operation, one JSON object per line: name, attributes, inputs, outputs. A tensor is its dtype, its stored shape and
data (numbers apart by spaces, complex ones as two), and optionally `view`: steps that lead from the stored tensor to the operand.
Answers are computed in the widest type from the inputs as stored, then rounded once to the dtype of the result.
"""

import json
import pathlib
import warnings

import numpy as np

HERE = pathlib.Path(__file__).parent

NUMPY = {
    "f32": np.float32,
    "f64": np.float64,
    "f16": np.float16,
    "bf16": np.float32,  # numpy has none: f32 that went through `to_bf16`
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "bool": np.bool_,
    "c32": np.complex64,
    "c64": np.complex128,
}
FLOATS = ["f32", "f64", "f16", "bf16"]
INTEGERS = ["i8", "u8", "i32", "u32", "i64"]
COMPLEX = ["c32", "c64"]


def to_bf16(values):
    """Rounds to the nearest bf16, ties to even, kept as f32."""
    values = np.asarray(values)
    # Rounding to f32 first could round twice; `odd` rounding of the bits that f32 drops prevents it.
    with np.errstate(over="ignore", invalid="ignore"):
        single = values.astype(np.float32)
        if values.dtype == np.float64:
            bits = single.view(np.uint32)
            inexact = np.isfinite(single) & (single.astype(np.float64) != values)
            away = np.abs(single.astype(np.float64)) > np.abs(values)
            bits = np.where(inexact & away, bits - 1, bits)
            bits = np.where(inexact, bits | 1, bits).astype(np.uint32)
            single = bits.view(np.float32)
    bits = single.view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).astype(np.uint32)
    return np.where(np.isnan(single), np.float32(np.nan), rounded.view(np.float32)).astype(np.float32)


def cast(values, dtype):
    """The values as stored under a dtype."""
    with np.errstate(all="ignore"):
        if dtype == "bf16":
            return to_bf16(values)
        return np.asarray(values).astype(NUMPY[dtype])


def wide(values):
    """The values in the widest type of their kind."""
    values = np.asarray(values)
    if values.dtype.kind == "f":
        return values.astype(np.float64)
    if values.dtype.kind == "c":
        return values.astype(np.complex128)
    return values


def number(x):
    """The shortest text that reads back as the same number of its type."""
    if isinstance(x, (bool, np.bool_)):
        return str(int(x))
    return str(x).removesuffix(".0")


def tensor(values, dtype, view=()):
    values = np.asarray(values)
    flat = values.reshape(-1)
    if values.dtype.kind == "c":
        flat = flat.view(np.float32 if values.dtype == np.complex64 else np.float64)
    out = {"dtype": dtype, "shape": list(values.shape), "data": " ".join(number(x) for x in flat)}
    if view:
        out["view"] = [list(step) for step in view]
    return out


def apply(values, view):
    """The numpy view that the steps of `view` lead to."""
    for step, *args in view:
        if step == "transpose":
            values = values.swapaxes(-1, -2)
        elif step == "permute":
            values = values.transpose(args[0])
        elif step == "broadcast":
            values = np.broadcast_to(values, args[0])
        elif step == "slice":
            axis, start, end, stride = args
            index = [slice(None)] * values.ndim
            index[axis] = slice(start, end)
            values = values[tuple(index)]
            index[axis] = slice(None, None, stride)
            values = values[tuple(index)]
        else:
            raise ValueError(step)
    return values


class File:
    """Cases of one operation."""

    def __init__(self, operation):
        self.operation = operation
        self.lines = []
        self.random = np.random.default_rng(sum(operation.encode()))

    def draw(self, dtype, shape, low=-2.0, high=2.0):
        """Random numbers as stored under a dtype."""
        if dtype == "bool":
            return self.random.random(shape) < 0.5
        if np.dtype(NUMPY[dtype]).kind in "iu":
            info = np.iinfo(NUMPY[dtype])
            return self.random.integers(max(info.min, -9), 10, shape).astype(NUMPY[dtype])
        # Three decimals keep the files small.
        values = self.random.uniform(low, high, shape).round(3)
        if dtype in COMPLEX:
            values = values + 1j * self.random.uniform(low, high, shape).round(3)
        return cast(values, dtype)

    def case(self, name, attributes, inputs, outputs):
        """Inputs are (values, dtype) or (values, dtype, view); outputs are (values, dtype), rounded here."""
        line = {
            "name": name,
            "attributes": attributes,
            "inputs": [tensor(*i) for i in inputs],
            "outputs": [tensor(cast(v, d), d) for v, d in outputs],
        }
        self.lines.append(json.dumps(line, allow_nan=False, separators=(",", ":")))

    def write(self):
        text = "\n".join(self.lines) + "\n"
        (HERE / f"{self.operation}.jsonl").write_text(text)
        print(f"{self.operation}: {len(self.lines)} cases, {len(text)} bytes")


def main():
    # Imported here because they import this file.
    import attention
    import conv
    import elementwise
    import fft
    import matmul
    import moving
    import norm
    import pool
    import quantize
    import reduce
    import rnn
    import softmax
    import sparse

    rooms = {room.__name__: room.cases for room in [attention, conv, matmul, elementwise, fft, reduce, rnn, softmax, norm, pool, sparse]}
    for name, cases in (rooms | moving.ROOMS | quantize.ROOMS).items():
        file = File(name)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # empty means are NaN, as wanted
            cases(file)
        file.write()


if __name__ == "__main__":
    main()
