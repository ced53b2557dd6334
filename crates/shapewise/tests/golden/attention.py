"""Golden cases of scaled dot-product attention, from torch in f64."""

import numpy as np
import torch

from make import FLOATS, apply, cast, wide


def attention(file, name, dtype, q, k, v, causality="full", mask=None, scale=None, views=((), (), ())):
    operands = [torch.from_numpy(np.ascontiguousarray(wide(apply(x, view)))) for x, view in zip((q, k, v), views)]
    tq, tk, tv = operands
    m, n = tq.shape[-2], tk.shape[-2]
    keep = torch.ones(m, n, dtype=torch.bool)
    if causality != "full":
        keep = keep.tril(n - m if causality == "from_end" else 0)
    bias = torch.zeros(m, n, dtype=torch.float64).masked_fill(~keep, -np.inf)
    inputs = [(x, dtype, view) for x, view in zip((q, k, v), views)]
    if mask is not None:
        if mask.dtype == np.bool_:
            bias = bias.masked_fill(~torch.from_numpy(mask), -np.inf)
            inputs.append((mask, "bool"))
        else:
            bias = bias + torch.from_numpy(wide(mask))
            inputs.append((mask, dtype))
    group = tq.shape[-3] // tk.shape[-3]
    result = torch.nn.functional.scaled_dot_product_attention(
        tq, tk.repeat_interleave(group, -3), tv.repeat_interleave(group, -3), attn_mask=bias, scale=scale
    )
    attributes = {"causality": causality, "scale": 0.0 if scale is None else scale}
    file.case(f"{name} {dtype}", attributes, inputs, [(result.numpy(), dtype)])


def cases(file):
    for dtype in FLOATS:
        draw = lambda *shape: file.draw(dtype, shape, -2, 2)
        attention(file, "one head", dtype, draw(1, 1, 5, 8), draw(1, 1, 7, 8), draw(1, 1, 7, 8))
        attention(file, "three axes, other value dim", dtype, draw(2, 4, 3), draw(2, 6, 3), draw(2, 6, 5))
        attention(file, "shared heads", dtype, draw(2, 4, 3, 4), draw(2, 2, 5, 4), draw(2, 2, 5, 4))
        attention(file, "causal", dtype, draw(1, 2, 6, 4), draw(1, 2, 6, 4), draw(1, 2, 6, 4), "causal")
        attention(file, "causal, more keys", dtype, draw(1, 1, 3, 4), draw(1, 1, 7, 4), draw(1, 1, 7, 4), "causal")
        attention(file, "from the end, more keys", dtype, draw(1, 1, 3, 4), draw(1, 1, 7, 4), draw(1, 1, 7, 4), "from_end")
        attention(file, "from the end, fewer keys", dtype, draw(1, 1, 6, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4), "from_end")
        attention(file, "one query", dtype, draw(1, 4, 1, 8), draw(1, 1, 9, 8), draw(1, 1, 9, 8), "from_end")
        attention(file, "scale", dtype, draw(1, 1, 3, 5), draw(1, 1, 4, 5), draw(1, 1, 4, 5), scale=0.75)
        keep = np.arange(2 * 3 * 4).reshape(2, 1, 3, 4) % 5 != 0
        attention(file, "boolean mask", dtype, draw(2, 2, 3, 4), draw(2, 2, 4, 4), draw(2, 2, 4, 4), mask=keep)
        none = np.array([[True, False, True], [False, False, False]])
        attention(file, "a query without keys", dtype, draw(1, 1, 2, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4), mask=none)
        added = draw(1, 2, 3, 4)
        added[0, 0, 1, 2] = -np.inf
        attention(file, "added mask", dtype, draw(1, 2, 3, 4), draw(1, 2, 4, 4), draw(1, 2, 4, 4), "causal", mask=added)
        attention(file, "large scores", dtype, cast(30 * draw(1, 1, 3, 4), dtype), draw(1, 1, 5, 4), draw(1, 1, 5, 4))
        turned = [("permute", [0, 2, 1, 3])]
        attention(file, "heads inside", dtype, draw(1, 3, 2, 4), draw(1, 5, 2, 4), draw(1, 5, 2, 4), views=(turned, turned, turned))
        attention(file, "no keys", dtype, draw(1, 1, 2, 4), draw(1, 1, 0, 4), draw(1, 1, 0, 4))
        attention(file, "no queries", dtype, draw(1, 1, 0, 4), draw(1, 1, 3, 4), draw(1, 1, 3, 4))
