"""Golden cases by the definitions of ONNX: every answer is the reference evaluator's for one node, in f64 where it takes floats.

Cases join the files of the operations that they are calls of, in the same words.
"""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from make import wide

OPSET = 18


def node(kind, inputs, outputs=1, opset=OPSET, **attributes):
    """What a single operator makes of arrays (None for an input that is left out)."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    typed = [
        onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for name, x in zip(names, inputs)
        if x is not None
    ]
    untyped = [onnx.helper.make_empty_tensor_value_info(name) for name in results]
    made = onnx.helper.make_node(kind, names, results, **attributes)
    graph = onnx.helper.make_graph([made], kind, typed, untyped)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, {n: x for n, x in zip(names, inputs) if x is not None})


def conv(file, name, dtype, x, w, bias=False, transposed=False, auto="", **options):
    axes, groups = len(x) - 2, options.get("group", 1)
    xs, ws = file.draw(dtype, x), file.draw(dtype, w)
    b = file.draw(dtype, (w[1] * groups if transposed else w[0],))
    pads = options.get("pads", [0] * 2 * axes)
    inputs = [wide(v) for v in ((xs, ws, b) if bias else (xs, ws))]
    named = {"auto_pad": {"same": "SAME_UPPER", "valid": "VALID"}[auto]} if auto else {}
    (y,) = node("ConvTranspose" if transposed else "Conv", inputs, **options, **named)
    attributes = {"axes": axes, "transposed": transposed, "last": False, "bias": bias, "activation": "none", "auto": auto}
    attributes["padding"] = [n for pair in zip(pads[:axes], pads[axes:]) for n in pair]
    attributes["groups"] = groups
    for key, ours, default in [("strides", "stride", 1), ("dilations", "dilation", 1), ("output_padding", "output_padding", 0)]:
        attributes[ours] = options.get(key, [default])[0]
    stored = [(xs, dtype), (ws, dtype)] + ([(b, dtype)] if bias else [])
    file.case(f"onnx {name} {dtype}", attributes, stored, [(y, dtype)])


def convs(file):
    for dtype in ["f32", "f64"]:
        conv(file, "Conv", dtype, (1, 2, 5, 6), (3, 2, 3, 3), bias=True, pads=[1, 0, 2, 1])
        conv(file, "Conv strided", dtype, (2, 1, 7, 5), (2, 1, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
        conv(file, "Conv groups", dtype, (1, 4, 6, 5), (4, 2, 2, 3), group=2, dilations=[2, 2])
        conv(file, "Conv same", dtype, (1, 2, 5, 6), (2, 2, 3, 2), auto="same")
        conv(file, "Conv same strided", dtype, (1, 2, 6, 7), (2, 2, 3, 4), auto="same", strides=[2, 2])
        conv(file, "Conv valid", dtype, (1, 2, 5, 6), (2, 2, 3, 2), auto="valid")
        conv(file, "Conv line", dtype, (2, 3, 9), (2, 3, 4), bias=True, strides=[3], pads=[2, 1])
        conv(file, "Conv volume", dtype, (1, 1, 4, 3, 5), (2, 1, 2, 2, 3), pads=[1, 0, 1, 1, 0, 1])
        conv(file, "ConvTranspose", dtype, (1, 2, 3, 4), (2, 3, 3, 3), transposed=True, bias=True, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])


def pool(file, name, dtype, kind, x, window, count=True, **options):
    n = len(window)
    stride, dilation = options.get("strides", [1] * n), options.get("dilations", [1] * n)
    pads, ceil = options.get("pads", [0] * 2 * n), options.get("ceil_mode", 0)
    if kind == "max":
        (y, _) = node("MaxPool", [wide(x)], 2, kernel_shape=window, **options)
    else:
        (y,) = node("AveragePool", [wide(x)], kernel_shape=window, count_include_pad=int(count), **options)
    attributes = {"kind": kind, "window": window, "stride": stride, "padding": pads[:n], "dilation": dilation}
    attributes |= {"ceil": bool(ceil), "count": count, "last": False, "places": False}
    file.case(f"onnx {kind} {name} {dtype}", attributes, [(x, dtype)], [(y, dtype)])


def whole(file, dtype, kind, shape):
    x = file.draw(dtype, shape)
    (y,) = node(f"Global{kind.title()}Pool", [wide(x)])
    attributes = {"kind": f"global {kind}", "window": [1] * (len(shape) - 2), "last": False}
    file.case(f"onnx global {kind} {dtype}", attributes, [(x, dtype)], [(y, dtype)])


def pools(file):
    for dtype in ["f32", "f64"]:
        draw = lambda *shape: file.draw(dtype, shape)
        pool(file, "plane", dtype, "max", draw(1, 2, 6, 7), [3, 2], strides=[2, 1], pads=[1, 1, 1, 1])
        pool(file, "line", dtype, "max", draw(2, 1, 9), [3], strides=[2])
        pool(file, "dilated", dtype, "max", draw(1, 1, 7, 8), [2, 2], dilations=[2, 2])
        pool(file, "volume", dtype, "max", draw(1, 1, 4, 4, 5), [2, 2, 2], strides=[2, 2, 2])
        pool(file, "plane", dtype, "average", draw(1, 2, 6, 7), [3, 2], strides=[2, 2], pads=[1, 1, 1, 1])
        pool(file, "padding left out", dtype, "average", draw(1, 1, 5, 6), [3, 3], count=False, pads=[1, 1, 1, 1])
        whole(file, dtype, "average", (2, 3, 4, 5))
        whole(file, dtype, "max", (2, 2, 3, 4))


def gathers(file):
    for dtype in ["f32", "i32"]:
        for axis, index in [(0, [[2, -1], [0, 0]]), (1, [3, 1]), (-1, [[-2]])]:
            x, index = file.draw(dtype, (3, 4, 2)), np.array(index)
            (y,) = node("Gather", [x, index], axis=axis)
            file.case(f"onnx Gather {axis} {dtype}", {"along": False, "axis": axis}, [(x, dtype), (index, "i64")], [(y, dtype)])
        x, index = file.draw(dtype, (3, 4)), np.array([[1, -1], [0, 3], [-4, 2]])
        (y,) = node("GatherElements", [x, index], axis=1)
        file.case(f"onnx GatherElements {dtype}", {"along": True, "axis": 1}, [(x, dtype), (index, "i64")], [(y, dtype)])


def scatters(file):
    for dtype in ["f32", "i32"]:
        for rule, reduction in [("set", "none"), ("add", "add"), ("prod", "mul"), ("max", "max"), ("min", "min")]:
            x = file.draw(dtype, (4, 5))
            # Who comes last is not defined by ONNX, so `none` has no index twice.
            index = np.array([[1, 3, 0], [2, -1, 0]] if rule == "set" else [[1, 1, 0], [4, -1, 4]])
            source = file.draw(dtype, (2, 3))
            (y,) = node("ScatterElements", [x, index, source], axis=1, reduction=reduction)
            attributes = {"along": True, "axis": 1, "combine": rule}
            file.case(f"onnx ScatterElements {rule} {dtype}", attributes, [(x, dtype), (index, "i64"), (source, dtype)], [(y, dtype)])


def tops(file):
    for dtype in ["f32", "i64"]:
        for axis, k, largest in [(0, 2, 1), (1, 3, 0), (-1, 5, 1)]:
            x = file.random.permutation(30).reshape(6, 5).astype(wide(file.draw(dtype, (1,))).dtype)
            values, places = node("TopK", [x, np.array([k])], 2, axis=axis, largest=largest, sorted=1)
            attributes = {"kind": "topk", "k": k, "axis": axis, "descending": bool(largest)}
            stored = (x.astype(np.float32) if dtype == "f32" else x, dtype)
            file.case(f"onnx TopK {axis} {dtype}", attributes, [stored], [(values, dtype), (places, "i64")])


def borders(file):
    for dtype in ["f32", "i32"]:
        for mode in ["constant", "edge", "reflect", "wrap"]:
            x, widths = file.draw(dtype, (3, 4)), [[1, 2], [0, 3]]
            pads = np.array([w[0] for w in widths] + [w[1] for w in widths])
            value = np.array(1, x.dtype) if mode == "constant" else None
            (y,) = node("Pad", [x, pads, value], opset=19, mode=mode)
            attributes = {"mode": mode, "widths": widths, "value": 1.0}
            file.case(f"onnx Pad {mode} {dtype}", attributes, [(x, dtype)], [(y, dtype)])


def spectra(file):
    for dtype, target in [("f32", "c32"), ("f64", "c64")]:
        for samples, frame, hop in [(40, 16, 4), (33, 12, 7)]:
            x, window = file.draw(dtype, (2, samples)), file.draw(dtype, (frame,), 0.1, 1.0)
            signal = wide(x)[:, :, None]
            (y,) = node("STFT", [signal, np.array(hop), wide(window), np.array(frame)], onesided=1)
            # Frames before frequencies, and the two parts as an axis.
            result = (y[..., 0] + 1j * y[..., 1]).transpose(0, 2, 1)
            attributes = {"kind": "stft", "frame": frame, "hop": hop, "centred": False}
            file.case(f"onnx STFT of {frame} {dtype}", attributes, [(x, dtype), (window, dtype)], [(result, target)])
