"""Golden cases of batch, layer, rms and group norm."""

import numpy as np

from make import FLOATS, apply, wide

EPSILON = 1e-5


def scaled(x, mean, variance, weight, bias, shape):
    y = (x - mean) / np.sqrt(variance + EPSILON)
    if weight is not None:
        y = y * wide(weight).reshape(shape)
    if bias is not None:
        y = y + wide(bias).reshape(shape)
    return y


def operands(file, dtype, *shapes):
    return [file.draw(dtype, s, 0.5, 1.5) if s is not None else None for s in shapes]


def given(dtype, *values):
    return [(v, dtype) for v in values if v is not None]


def attributes(kind, weight, bias, **more):
    return {"kind": kind, "epsilon": EPSILON, "weight": weight is not None, "bias": bias is not None, **more}


def layer(file, name, dtype, shape, axes, affine=True, rms=False, view=()):
    """The last `axes` axes are normalised together."""
    stored = file.draw(dtype, shape, -2, 3)
    x = wide(apply(stored, view))
    inner = x.shape[x.ndim - axes :]
    weight, bias = operands(file, dtype, inner if affine else None, inner if affine and not rms else None)
    over = tuple(range(x.ndim - axes, x.ndim))
    mean = 0 if rms else x.mean(axis=over, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=over, keepdims=True)
    y = scaled(x, mean, variance, weight, bias, inner)
    kind = "rms" if rms else "layer"
    more = attributes(kind, weight, bias, axes=axes)
    file.case(f"{kind} {name} {dtype}", more, [(stored, dtype, view), *given(dtype, weight, bias)], [(y, dtype)])


def batch(file, name, dtype, shape, affine=True, view=()):
    """Axis 1 has the channels; inference from given statistics, and training statistics."""
    stored = file.draw(dtype, shape, -2, 3)
    x = wide(apply(stored, view))
    channels = x.shape[1]
    weight, bias = operands(file, dtype, *([(channels,)] * 2 if affine else [None, None]))
    mean, variance = file.draw(dtype, (channels,)), file.draw(dtype, (channels,), 0.5, 2.0)
    along = [1, channels] + [1] * (x.ndim - 2)
    y = scaled(x, wide(mean).reshape(along), wide(variance).reshape(along), weight, bias, along)
    inputs = [(stored, dtype, view), *given(dtype, mean, variance, weight, bias)]
    file.case(f"batch {name} {dtype}", attributes("batch", weight, bias), inputs, [(y, dtype)])

    over = tuple(i for i in range(x.ndim) if i != 1)
    mean, variance = x.mean(axis=over), x.var(axis=over)
    y = scaled(x, mean.reshape(along), variance.reshape(along), weight, bias, along)
    inputs = [(stored, dtype, view), *given(dtype, weight, bias)]
    more = attributes("batch_training", weight, bias)
    statistics = "f64" if dtype == "f64" else "f32"
    file.case(f"batch training {name} {dtype}", more, inputs, [(y, dtype), (mean, statistics), (variance, statistics)])


def group(file, name, dtype, shape, groups, affine=True, view=()):
    stored = file.draw(dtype, shape, -2, 3)
    x = wide(apply(stored, view))
    channels = x.shape[1]
    weight, bias = operands(file, dtype, *([(channels,)] * 2 if affine else [None, None]))
    split = x.reshape([x.shape[0], groups, -1])
    mean, variance = split.mean(axis=2, keepdims=True), split.var(axis=2, keepdims=True)
    plain = ((split - mean) / np.sqrt(variance + EPSILON)).reshape(x.shape)
    along = [1, channels] + [1] * (x.ndim - 2)
    y = plain if weight is None else plain * wide(weight).reshape(along) + wide(bias).reshape(along)
    inputs = [(stored, dtype, view), *given(dtype, weight, bias)]
    file.case(f"group {name} {dtype}", attributes("group", weight, bias, groups=groups), inputs, [(y, dtype)])


def cases(file):
    for dtype in FLOATS:
        for rms in (False, True):
            layer(file, "last axis", dtype, (3, 17), 1, rms=rms)
            layer(file, "long", dtype, (1, 67), 1, rms=rms)
            layer(file, "plain", dtype, (3, 8), 1, affine=False, rms=rms)
            layer(file, "two axes", dtype, (2, 3, 5), 2, rms=rms)
            layer(file, "three axes in front", dtype, (2, 1, 3, 6), 1, rms=rms)
            layer(file, "one element", dtype, (3, 1), 1, rms=rms)
            layer(file, "no rows", dtype, (0, 4), 1, rms=rms)
            layer(file, "transposed", dtype, (6, 4), 1, rms=rms, view=[("transpose",)])
            layer(file, "strided", dtype, (4, 14), 1, rms=rms, view=[("slice", 1, 0, 14, 2)])
        for shape in [(2, 3, 3, 2), (5, 3), (2, 3, 5)]:
            batch(file, f"of rank {len(shape)}", dtype, shape)
        batch(file, "plain", dtype, (3, 4, 5), affine=False)
        batch(file, "channels last", dtype, (2, 2, 3, 3), view=[("permute", [0, 3, 1, 2])])
        group(file, "pairs", dtype, (2, 4, 5), 2)
        group(file, "one group", dtype, (3, 3, 2, 2), 1)
        group(file, "a group each", dtype, (2, 3, 7), 3)
        group(file, "plain", dtype, (2, 6, 4), 3, affine=False)
        group(file, "channels last", dtype, (2, 3, 4), 2, view=[("transpose",)])
