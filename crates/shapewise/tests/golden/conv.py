"""Golden cases of convolutions, from torch in f64 and by the definition of ONNX."""

import torch

import by_onnx
from make import FLOATS, wide

F = torch.nn.functional


def conv(file, name, dtype, x, w, bias=False, last=False, transposed=False, activation="none", **options):
    axes = len(x) - 2
    groups = options.get("groups", 1)
    xs, ws = file.draw(dtype, x), file.draw(dtype, w)
    channels = w[1] * groups if transposed else w[0]
    b = file.draw(dtype, (channels,))
    tx, tw, tb = (torch.tensor(wide(v)) for v in (xs, ws, b))
    kind = f"conv_transpose{axes}d" if transposed else f"conv{axes}d"
    padding = options.pop("padding", 0)
    auto = padding if padding in ("same", "valid") else ""
    pairs = [(0, 0)] * axes if auto else padding if isinstance(padding, list) else [(padding, padding)] * axes
    if auto:
        y = getattr(F, kind)(tx, tw, tb if bias else None, padding=auto, **options)
    elif transposed:
        y = getattr(F, kind)(tx, tw, tb if bias else None, padding=padding, **options)
    else:
        flat = [n for pair in reversed(pairs) for n in pair]
        y = getattr(F, kind)(F.pad(tx, flat), tw, tb if bias else None, **options)
    if activation == "relu":
        y = y.relu()
    elif activation == "gelu":
        y = F.gelu(y)
    attributes = {"axes": axes, "transposed": transposed, "last": last, "bias": bias, "activation": activation, "auto": auto}
    attributes["padding"] = [n for pair in pairs for n in pair]
    attributes["groups"] = groups
    for key, default in [("stride", 1), ("dilation", 1), ("output_padding", 0)]:
        attributes[key] = options.get(key, default)
    if last:
        order = [0, *range(2, axes + 2), 1]
        xs, y = xs.transpose(order), y.permute(order)
    inputs = [(xs, dtype), (ws, dtype)] + ([(b, dtype)] if bias else [])
    file.case(f"{kind} {name} {dtype}", attributes, inputs, [(y.contiguous().numpy(), dtype)])


def cases(file):
    for dtype in FLOATS:
        conv(file, "3×3", dtype, (1, 3, 6, 7), (4, 3, 3, 3), padding=1, bias=True, activation="relu")
        conv(file, "3×3 nhwc", dtype, (1, 3, 5, 6), (4, 3, 3, 3), padding=1, last=True, bias=True)
        conv(file, "7×7 stride 2", dtype, (1, 2, 9, 9), (3, 2, 7, 7), padding=3, stride=2)
        conv(file, "1×1", dtype, (2, 4, 3, 3), (5, 4, 1, 1), bias=True)
        conv(file, "depthwise", dtype, (1, 5, 6, 6), (5, 1, 3, 3), padding=1, groups=5, activation="gelu")
        conv(file, "groups, dilated", dtype, (1, 4, 8, 8), (6, 2, 3, 3), groups=2, dilation=2)
        conv(file, "uneven padding", dtype, (1, 2, 4, 5), (2, 2, 3, 2), padding=[(2, 0), (0, 3)])
        conv(file, "line", dtype, (2, 3, 11), (4, 3, 4), stride=3, padding=2, bias=True)
        conv(file, "volume", dtype, (1, 2, 4, 5, 4), (2, 2, 3, 2, 3), padding=1, stride=2)
        conv(file, "transposed", dtype, (1, 3, 4, 4), (3, 2, 3, 3), transposed=True, stride=2, padding=1, output_padding=1, bias=True)
        conv(file, "transposed groups", dtype, (1, 4, 3, 5), (4, 2, 2, 3), transposed=True, groups=2, dilation=2)
        conv(file, "transposed line", dtype, (1, 2, 5), (2, 3, 4), transposed=True, stride=3)
        conv(file, "transposed volume", dtype, (1, 2, 2, 3, 2), (2, 2, 2, 2, 3), transposed=True, stride=2)
    for dtype in FLOATS:
        conv(file, "same", dtype, (1, 2, 5, 6), (3, 2, 3, 3), padding="same", bias=True)
        # One zero more is needed than both sides share, and it comes last.
        conv(file, "same, even kernel, dilated", dtype, (1, 2, 6, 7), (2, 2, 2, 4), padding="same", dilation=3)
        conv(file, "same line nhwc", dtype, (1, 2, 8), (2, 2, 4), padding="same", last=True)
        conv(file, "valid", dtype, (1, 2, 5, 6), (2, 2, 3, 2), padding="valid", stride=2)
        conv(file, "volume nhwc", dtype, (1, 2, 3, 4, 3), (2, 2, 2, 3, 2), last=True, padding=1)
    by_onnx.convs(file)
