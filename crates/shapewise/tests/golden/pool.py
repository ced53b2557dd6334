"""Golden cases of pooling, from torch in f64 (integers as they are) and by the definition of ONNX."""

import numpy as np
import torch
import torch.nn.functional as F

import by_onnx
from make import FLOATS, apply, wide

MAX = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
ADAPTIVE = {1: F.adaptive_avg_pool1d, 2: F.adaptive_avg_pool2d, 3: F.adaptive_avg_pool3d}


def pool(file, name, dtype, kind, x, window, stride=None, padding=None, dilation=None, ceil=False, count=True, view=(), last=False):
    n = len(window)
    stride, padding, dilation = stride or window, padding or [0] * n, dilation or [1] * n
    operand = torch.from_numpy(np.ascontiguousarray(wide(apply(x, view))))
    attributes = {"kind": kind, "window": window, "stride": stride, "padding": padding, "dilation": dilation, "ceil": ceil, "count": count}
    attributes |= {"last": last, "places": kind == "max" and not last}
    if kind == "max":
        result, at = MAX[n](operand.double(), window, stride, padding, dilation, ceil, return_indices=True)
        outputs = [(result.numpy(), dtype), (at.numpy(), "i64")]
    elif kind == "average":
        outputs = [(AVERAGE[n](operand, window, stride, padding, ceil, count).numpy(), dtype)]
    else:
        outputs = [(ADAPTIVE[n](operand, window).numpy(), dtype)]
    if last:
        # Places are counted by plane in both orders; only values are turned.
        order = [0, *range(2, n + 2), 1]
        x, outputs = x.transpose(order), [(outputs[0][0].transpose(order), dtype)]
    file.case(f"{kind} {name} {dtype}", attributes, [(x, dtype, view)], outputs)


def cases(file):
    for dtype in FLOATS + ["i8", "i32", "i64", "u8"]:
        draw = lambda *shape: file.draw(dtype, shape)
        kinds = ["max", "average"] if dtype in FLOATS else ["max"]
        for kind in kinds:
            pool(file, "one axis", dtype, kind, draw(2, 2, 9), [3], [2], [1])
            pool(file, "two axes", dtype, kind, draw(1, 2, 7, 9), [3, 2], [2, 1], [1, 1])
            pool(file, "three axes", dtype, kind, draw(1, 1, 4, 5, 6), [2, 3, 2], [1, 2, 2], [0, 1, 1])
            pool(file, "no batch", dtype, kind, draw(2, 5, 6), [2, 2])
            pool(file, "rounded up", dtype, kind, draw(1, 1, 6, 8), [3, 3], [2, 2], [1, 0], ceil=True)
            pool(file, "transposed", dtype, kind, draw(1, 2, 6, 5), [2, 3], [1, 1], view=[("transpose",)])
    for dtype in FLOATS:
        draw = lambda *shape: file.draw(dtype, shape)
        pool(file, "dilated", dtype, "max", draw(1, 1, 9, 10), [2, 3], [1, 2], [1, 1], [3, 2])
        pool(file, "padding left out", dtype, "average", draw(1, 1, 6, 7), [3, 3], [2, 2], [1, 1], ceil=True, count=False)
        pool(file, "even", dtype, "adaptive", draw(1, 2, 7, 10), [3, 4])
        special = draw(1, 1, 4, 6)
        special[0, 0, 0, 0], special[0, 0, 1, 3], special[0, 0, 2:, 4:] = np.nan, np.inf, -np.inf
        pool(file, "infinite and not a number", dtype, "max", special, [2, 2])
        for kind in ["max", "average"]:
            pool(file, "nhwc", dtype, kind, draw(2, 3, 6, 7), [3, 2], [2, 2], [1, 1], last=True)
            pool(file, "nhwc line", dtype, kind, draw(1, 4, 9), [3], [2], [1], last=True)
            pool(file, "nhwc volume", dtype, kind, draw(1, 2, 3, 4, 5), [2, 2, 3], last=True)
        for kind, by in [("max", np.max), ("average", np.mean)]:
            x = draw(2, 3, 4, 5)
            attributes = {"kind": f"global {kind}", "window": [1, 1], "last": False}
            file.case(f"global {kind} {dtype}", attributes, [(x, dtype)], [(by(wide(x), axis=(2, 3), keepdims=True), dtype)])
    by_onnx.pools(file)
