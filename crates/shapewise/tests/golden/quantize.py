"""Golden cases of quantisation: onnxruntime and ONNX's reference implementation for the operators that ONNX defines, numpy by
ONNX's words beside them.

Products of integers are numpy's, because onnxruntime may saturate where the CPU has no VNNI; small numbers are compared with it, and
those without zero points of rows with ONNX's reference implementation.
"""

import numpy as np
import onnx
import onnxruntime
import scipy.stats
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from make import cast, wide

RANGE = {"i8": (-128, 127), "u8": (0, 255), "i16": (-32768, 32767), "i4": (-8, 7), "u4": (0, 15)}
PROTO = {
    "i8": TensorProto.INT8,
    "u8": TensorProto.UINT8,
    "i16": TensorProto.INT16,
    "i4": TensorProto.INT4,
    "u4": TensorProto.UINT4,
}
HELD = {"i8": "i8", "u8": "u8", "i16": "i16", "i4": "u8", "u4": "u8"}
NUMPY = {"i8": np.int8, "u8": np.uint8, "i16": np.int16}


def run(nodes, inputs, constants, outputs, opset=21):
    """The outputs (name: (element type, shape)) of a graph."""
    types = {np.dtype("f4"): TensorProto.FLOAT, np.dtype("i1"): TensorProto.INT8, np.dtype("u1"): TensorProto.UINT8}
    graph = helper.make_graph(
        nodes,
        "golden",
        [helper.make_tensor_value_info(k, types[v.dtype], v.shape) for k, v in inputs.items()],
        [helper.make_tensor_value_info(k, *v) for k, v in outputs.items()],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    options = onnxruntime.SessionOptions()
    # Every operator as it is written.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def defined(operator, inputs, opset=23, **attributes):
    """One operator by ONNX's reference implementation; None stands for an input that is left out."""
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    feeds = {n: np.asarray(x) for n, x in zip(names, inputs) if n}
    info = lambda n, x: helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
    node = helper.make_node(operator, names, ["y"], **attributes)
    outcome = helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)
    graph = helper.make_graph([node], "one", [info(n, x) for n, x in feeds.items()], [outcome])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model).run(None, feeds)[0]


def quantized(x, scale, zero, kind, **attributes):
    """QuantizeLinear, as plain integers."""
    constants = [
        numpy_helper.from_array(np.asarray(scale, np.float32), "s"),
        helper.make_tensor("z", PROTO[kind], np.shape(zero), np.asarray(zero).reshape(-1)),
        numpy_helper.from_array(np.float32(1), "one"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"], **attributes),
        helper.make_node("DequantizeLinear", ["q", "one"], ["y"]),
    ]
    return run(nodes, {"x": x}, constants, {"y": (TensorProto.FLOAT, x.shape)})[0].astype(np.int64)


def held(values, kind):
    """As a tensor holds them: four bits two in a byte, the first one low."""
    if kind in ("i4", "u4"):
        pairs = (np.asarray(values) & 15).reshape(*np.shape(values)[:-1], -1, 2)
        return (pairs[..., 0] | pairs[..., 1] << 4).astype(np.uint8)
    return np.asarray(values).astype(NUMPY[kind])


def spread(values, shape, granularity, axis, block):
    """Scales or zero points for every element."""
    if granularity == "tensor":
        return np.broadcast_to(values, shape)
    if granularity == "channel":
        return np.broadcast_to(np.reshape(values, [-1 if i == axis else 1 for i in range(len(shape))]), shape)
    return np.repeat(values, block, -1)[..., : shape[-1]]


def conversions(file):
    draw = lambda *shape: file.random.uniform(-3, 3, shape).round(3).astype(np.float32)
    edges = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 1e30, -1e30, np.inf, -np.inf, 0, 40000, -40000, 7.5, -8.5]], np.float32)
    for kind, (low, high) in RANGE.items():
        some = lambda *shape: file.random.integers(max(low, -9), min(high, 20) + 1, shape)
        scales = lambda *shape: file.random.uniform(0.02, 0.3, shape).astype(np.float32)
        for name, x, granularity, axis, block, scale, zero in [
            ("tensor", draw(3, 14), "tensor", 1, 0, scales(), some()),
            ("no zero point", draw(2, 34), "tensor", 1, 0, np.float32(0.05), np.int64(0)),
            ("rounding and borders", edges, "tensor", 1, 0, np.float32(1), np.int64(0)),
            ("rounding and borders, zero point", edges, "tensor", 1, 0, np.float32(0.5), np.int64(3)),
            ("first axis", draw(3, 10), "channel", 0, 0, scales(3), some(3)),
            ("middle axis", draw(2, 3, 6), "channel", 1, 0, scales(3), some(3)),
            ("last axis", draw(2, 34), "channel", 1, 0, scales(34), some(34)),
            ("blocks", draw(2, 16), "block", 1, 8, scales(2, 2), some(2, 2)),
            ("a shorter last block", draw(2, 14), "block", 1, 4, scales(2, 4), some(2, 4)),
        ]:
            if granularity == "block":
                options = {"axis": axis, "block_size": block}
            else:
                options = {"axis": axis} if granularity == "channel" else {}
            q = quantized(x, scale, zero, kind, **options)
            s = spread(scale, x.shape, granularity, axis, block)
            z = spread(zero, x.shape, granularity, axis, block)
            assert (q == np.clip(np.rint(x / s).astype(np.float64) + z, low, high)).all(), name
            attributes = {"call": "quantize", "kind": kind, "granularity": granularity, "axis": axis, "block": block}
            given = [(scale, "f32"), (np.asarray(zero, np.int32), "i32")]
            stored = (held(q, kind), HELD[kind])
            file.case(f"quantize {name} {kind}", attributes, [(x, "f32"), *given], [stored])
            back = (q - z).astype(np.float32) * s
            attributes = attributes | {"call": "dequantize"}
            file.case(f"dequantize {name} {kind}", attributes, [stored, *given], [(back, "f32")])
    short = cast(draw(2, 20), "bf16")
    attributes = {"call": "quantize", "kind": "i8", "granularity": "tensor", "axis": 0, "block": 0}
    given = [(np.float32(0.05), "f32"), (np.int32(-4), "i32")]
    q = np.clip(np.rint(short / np.float32(0.05)) - 4, -128, 127)
    file.case("quantize bf16", attributes, [(short, "bf16"), *given], [(q, "i8")])
    calibrations(file)
    searches(file)
    halves(file)
    requantised(file)


def halves(file):
    """Numbers of 16 bits with scales of 32, as ONNX has them from version 23 on: divided in the type of the scale."""
    x = file.random.uniform(-3, 3, (2, 20)).astype(np.float16)
    for kind in ["i8", "u8"]:
        zero = NUMPY[kind](5)
        q = defined("QuantizeLinear", [x.astype(np.float32), np.float32(0.03), zero])
        attributes = {"call": "quantize", "kind": kind, "granularity": "tensor", "axis": 0, "block": 0}
        given = [(np.float32(0.03), "f32"), (np.int32(5), "i32")]
        file.case(f"quantize f16 {kind}", attributes, [(x, "f16"), *given], [(q, kind)])


def requantised(file):
    """DequantizeLinear and then QuantizeLinear."""
    for from_kind, to_kind in [("i8", "u8"), ("u8", "i8"), ("i8", "i8"), ("i16", "i8"), ("u8", "i4"), ("i8", "u4")]:
        low, high = RANGE[from_kind]
        q = file.random.integers(low, high, (3, 12), endpoint=True).astype(NUMPY[from_kind])
        for name, axis, scale, zero in [
            ("tensor", None, np.float32(0.05), NUMPY[from_kind](3)),
            ("channels", 0, file.random.uniform(0.02, 0.1, 3).astype(np.float32), np.arange(3).astype(NUMPY[from_kind])),
        ]:
            options = {} if axis is None else {"axis": axis}
            x = defined("DequantizeLinear", [q, scale, zero], **options)
            to = (0.04, 2)
            y = quantized(x, np.float32(to[0]), to[1], to_kind)
            granularity = "tensor" if axis is None else "channel"
            attributes = {"call": "requantize", "kind": from_kind, "granularity": granularity, "axis": axis or 0, "block": 0, "to": [to_kind, *to]}
            inputs = [(q, from_kind), (scale, "f32"), (np.asarray(zero, np.int32), "i32")]
            file.case(f"requantize {name} {from_kind} {to_kind}", attributes, inputs, [(held(y, to_kind), HELD[to_kind])])


def searches(file):
    """Calibrations that try ranges: the smallest error of a hundred parts of the range, the smallest divergence of 2048 bins."""
    x = file.random.normal(0, 1, (2, 400)).round(3).astype(np.float32)
    x[:, 0] = [9.5, -11.25]
    for kind in ["i8", "i4"]:
        low, high = RANGE[kind]
        for symmetric in [False, True]:
            scales, zeros = [], []
            for row in x:
                tried = []
                for part in range(100, 0, -1):
                    scale, zero = cover(row.min().astype(float) * (part / 100), row.max().astype(float) * (part / 100), kind, symmetric)
                    back = np.clip(np.rint(row / scale), low - zero, high - zero).astype(np.float32) * scale
                    tried.append((float(np.square((row - back).astype(np.float64)).sum()), -part, scale, zero))
                _, _, scale, zero = min(tried, key=lambda t: t[0])
                scales.append(scale), zeros.append(zero)
            attributes = {"call": "calibrate", "kind": kind, "method": "mse", "symmetric": symmetric}
            file.case(f"calibrate mse {kind} {symmetric}", attributes, [(x, "f32")], [(scales, "f32"), (zeros, "i32")])
        limits = [entropy_limit(row, 1 << (4 if kind == "i4" else 8) - 1) for row in x]
        scales = [cover(max(row.min(), -limit), min(row.max(), limit), kind, True)[0] for row, limit in zip(x, limits)]
        attributes = {"call": "calibrate", "kind": kind, "method": "entropy", "symmetric": True}
        file.case(f"calibrate entropy {kind}", attributes, [(x, "f32")], [(scales, "f32"), ([0, 0], "i32")])


def cover(bottom, top, kind, symmetric):
    """Scale and zero point of a range."""
    low, high = RANGE[kind]
    if symmetric:
        return np.float32(max(abs(bottom), abs(top)) / high), 0
    bottom, top = min(bottom, 0), max(top, 0)
    scale = np.float32((top - bottom) / (high - low))
    return scale, int(np.rint(low - bottom / float(scale)).clip(low, high))


def entropy_limit(row, levels):
    """Where to cut magnitudes, by TensorRT's procedure with scipy's divergence."""
    bins, sizes = 2048, np.abs(row).astype(np.float64)
    counts, _ = np.histogram(sizes, bins, (0, sizes.max()))
    best = (np.inf, bins)
    for kept in range(levels, bins + 1):
        p = counts[:kept].astype(np.float64)
        q = np.zeros(kept)
        for level in range(levels):
            part = slice(kept * level // levels, kept * (level + 1) // levels)
            filled = p[part] > 0
            if filled.any():
                q[part] = np.where(filled, p[part].sum() / filled.sum(), 0)
        p[-1] += counts[kept:].sum()
        if q.sum() > 0:
            best = min(best, (scipy.stats.entropy(p, q), kept), key=lambda pair: pair[0])
    return sizes.max() if best[1] == bins else (best[1] + 0.5) * sizes.max() / bins


def calibrations(file):
    x = file.random.normal(0, 1, (4, 30)).round(3).astype(np.float32)
    for kind in ["i8", "u8", "i4"]:
        low, high = RANGE[kind]
        for symmetric in [False, True]:
            for method, percent in [("min_max", 100), ("percentile", 90)]:
                rows = wide(x)
                if symmetric:
                    middle = (high + 1) // 2 if low == 0 else 0
                    top = np.percentile(np.abs(rows), percent, axis=1)
                    scale, zero = top / (high - middle), np.full(4, middle)
                else:
                    tail = (100 - percent) / 2
                    bottom = np.minimum(np.percentile(rows, tail, axis=1), 0)
                    top = np.maximum(np.percentile(rows, 100 - tail, axis=1), 0)
                    scale = ((top - bottom) / (high - low)).astype(np.float32)
                    zero = np.rint(low - bottom / scale.astype(np.float64)).clip(low, high)
                attributes = {"call": "calibrate", "kind": kind, "method": method, "symmetric": symmetric}
                outputs = [(scale, "f32"), (zero, "i32")]
                file.case(f"calibrate {method} {kind} {symmetric}", attributes, [(x, "f32")], outputs)


def rescaled(sums, a_scale, b_scale, y_scale, y_zero, kind):
    factor = np.float32(a_scale) * np.float32(b_scale) / np.float32(y_scale)
    return np.clip(np.rint(sums.astype(np.float32) * factor) + y_zero, *RANGE[kind])


def products(file):
    byte = lambda kind, *shape: file.random.integers(*RANGE[kind], shape, endpoint=True).astype(NUMPY[kind])
    tame = lambda kind, *shape: (byte(kind, *shape) // 4).astype(NUMPY[kind])
    for a_kind in ["i8", "u8"]:
        for b_kind in ["i8", "u8"]:
            types = f"{a_kind} {b_kind}"
            for name, a, b, za, zb in [
                ("plain", byte(a_kind, 4, 7), byte(b_kind, 7, 5), None, None),
                ("zero points", byte(a_kind, 3, 20), byte(b_kind, 20, 17), byte(a_kind, 1), byte(b_kind, 1)),
                ("of rows and columns", byte(a_kind, 5, 9), byte(b_kind, 9, 18), byte(a_kind, 5), byte(b_kind, 18)),
                ("batches", byte(a_kind, 2, 3, 6), byte(b_kind, 6, 4), None, byte(b_kind, 1)),
                ("a row", byte(a_kind, 33), byte(b_kind, 33, 3), byte(a_kind, 1), None),
            ]:
                left = a.astype(np.int64) - (0 if za is None else za.astype(np.int64).reshape(-1, 1) if za.size > 1 else int(za[0]))
                right = b.astype(np.int64) - (0 if zb is None else zb.astype(np.int64))
                zeros = [(z, k) for z, k in ((za, a_kind), (zb, b_kind)) if z is not None]
                if za is None or za.size == 1:
                    assert (defined("MatMulInteger", [a, b, za, zb]) == left @ right).all(), name
                attributes = {"call": "matmul_integer", "a_zero": za is not None, "b_zero": zb is not None, "packed": ""}
                file.case(f"{name} {types}", attributes, [(a, a_kind), (b, b_kind), *zeros], [(left @ right, "i32")])
            quantised_product(file, f"quantised {types}", tame(a_kind, 4, 12), tame(b_kind, 12, 6), a_kind, b_kind)
    for kind in ["i4", "u4"]:
        a, b = byte("u8", 5, 11), file.random.integers(*RANGE[kind], (11, 18), endpoint=True)
        zero = np.array([3], np.int8 if kind == "i4" else np.uint8)
        attributes = {"call": "matmul_integer", "a_zero": False, "b_zero": True, "packed": kind}
        inputs = [(a, "u8"), (held(b, kind), "u8"), (zero, "i8" if kind == "i4" else "u8")]
        file.case(f"four bits {kind}", attributes, inputs, [(a.astype(np.int64) @ (b - 3), "i32")])
    convolutions(file, byte, tame)
    weight_zero_points(file, byte)
    for a_kind, b_kind in [("u8", "i8"), ("i8", "u8")]:
        a, b, za, zb = byte(a_kind, 2, 3, 5), byte(b_kind, 2, 5, 4), byte(a_kind, 1), byte(b_kind, 1)
        attributes = {"call": "matmul_integer", "a_zero": True, "b_zero": True, "packed": ""}
        sums = defined("MatMulInteger", [a, b, za, zb])
        file.case(f"ONNX batches {a_kind} {b_kind}", attributes, [(a, a_kind), (b, b_kind), (za, a_kind), (zb, b_kind)], [(sums, "i32")])


def weight_zero_points(file, byte):
    """QLinearConv by ONNX's reference implementation, with weights of either sign and zero points of theirs."""
    for x_kind in ["u8", "i8"]:
        for w_kind in ["i8", "u8"]:
            for name, shape, weights, each in [("tensor", (1, 2, 5, 5), (3, 2, 3, 3), False), ("channels", (2, 3, 4, 4), (4, 3, 2, 2), True)]:
                x, w, outputs = byte(x_kind, *shape), byte(w_kind, *weights), weights[0]
                w_scale = file.random.uniform(0.01, 0.1, outputs).astype(np.float32)
                w_zero = byte(w_kind, outputs) if each else np.repeat(byte(w_kind, 1), outputs)
                bias = file.random.integers(-500, 500, outputs).astype(np.int32)
                zx, zy, scales = NUMPY[x_kind](7), NUMPY[x_kind](20), (np.float32(0.04), np.float32(11.0))
                inputs = [x, scales[0], zx, w, w_scale, w_zero, scales[1], zy, bias]
                y = defined("QLinearConv", inputs, 21, strides=[1, 1], pads=[1] * 4, dilations=[1, 1], group=1, kernel_shape=weights[2:])
                attributes = {"stride": 1, "pad": 1, "dilation": 1, "groups": 1, "x": [0.04, 7], "y": [11.0, 20], "call": "qconv"}
                inputs = [(x, x_kind), (w, w_kind), (w_scale, "f32"), (bias, "i32"), (w_zero.astype(np.int32), "i32")]
                file.case(f"ONNX quantised convolution, zero points of {name} {x_kind} {w_kind}", attributes, inputs, [(y, x_kind)])


def quantised_product(file, name, a, b, a_kind, b_kind):
    a_scale, b_scale, y_scale = np.float32(0.02), file.random.uniform(0.01, 0.1, b.shape[1]).astype(np.float32), np.float32(0.7)
    za, zb, zy = 3, (np.arange(b.shape[1]) % 4).astype(NUMPY[b_kind]), 5
    sums = (a.astype(np.int64) - za) @ (b.astype(np.int64) - zb.astype(np.int64))
    y = rescaled(sums, a_scale, b_scale, y_scale, zy, a_kind)
    constant = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
    constants = [
        constant("as", a_scale), constant("az", NUMPY[a_kind](za)), constant("b", b), constant("bs", b_scale),
        constant("bz", zb), constant("ys", y_scale), constant("yz", NUMPY[a_kind](zy)),
    ]
    node = helper.make_node("QLinearMatMul", ["a", "as", "az", "b", "bs", "bz", "ys", "yz"], ["y"])
    # onnxruntime has no product of i8 and u8.
    if (a_kind, b_kind) != ("i8", "u8"):
        ort = run([node], {"a": a}, constants, {"y": (PROTO[a_kind], y.shape)}, 13)[0]
        assert (ort == y).all(), name
    inputs = [(a, a_kind), (b, b_kind), (b_scale, "f32"), (zb.astype(np.int32), "i32")]
    attributes = {"call": "qmatmul", "a": [0.02, za], "y": [0.7, zy]}
    file.case(name, attributes, inputs, [(y, a_kind)])


def convolutions(file, byte, tame):
    for name, shape, weights, stride, pad, dilation, groups in [
        ("plain", (1, 2, 5, 5), (3, 2, 3, 3), 1, 0, 1, 1),
        ("padded", (2, 3, 4, 6), (4, 3, 3, 3), 1, 1, 1, 1),
        ("strided", (1, 2, 7, 7), (2, 2, 3, 3), 2, 1, 1, 1),
        ("dilated", (1, 1, 7, 7), (2, 1, 2, 3), 1, 2, 2, 1),
        ("groups", (1, 4, 5, 5), (6, 2, 3, 3), 1, 1, 1, 2),
        ("depthwise", (1, 3, 5, 5), (3, 1, 3, 3), 1, 1, 1, 3),
        ("pointwise", (1, 5, 4, 4), (7, 5, 1, 1), 1, 0, 1, 1),
    ]:
        x, w = tame("u8", *shape), tame("i8", *weights)
        outputs = weights[0]
        w_scale = file.random.uniform(0.01, 0.1, outputs).astype(np.float32)
        bias = file.random.integers(-500, 500, outputs).astype(np.int32)
        zx, zy = 7, 20
        options = {"strides": [stride] * 2, "pads": [pad] * 4, "dilations": [dilation] * 2, "group": groups}
        constant = lambda name, value: numpy_helper.from_array(np.asarray(value), name)
        constants = [
            constant("xs", np.float32(0.04)), constant("xz", np.uint8(zx)), constant("w", w), constant("ws", w_scale),
            constant("wz", np.zeros(outputs, np.int8)), constant("ys", np.float32(0.9)), constant("yz", np.uint8(zy)),
            constant("b", bias),
        ]
        node = helper.make_node("QLinearConv", ["x", "xs", "xz", "w", "ws", "wz", "ys", "yz", "b"], ["y"], **options)
        plain = helper.make_node("ConvInteger", ["x", "w", "xz"], ["s"], **options)
        shapes = {"y": (TensorProto.UINT8, None), "s": (TensorProto.INT32, None)}
        y, sums = run([node, plain], {"x": x}, constants, shapes, 13)
        attributes = {"stride": stride, "pad": pad, "dilation": dilation, "groups": groups, "x": [0.04, zx], "y": [0.9, zy]}
        inputs = [(x, "u8"), (w, "i8")]
        file.case(f"convolution {name}", attributes | {"call": "conv"}, inputs, [(sums, "i32")])
        inputs += [(w_scale, "f32"), (bias, "i32")]
        file.case(f"quantised convolution {name}", attributes | {"call": "qconv"}, inputs, [(y, "u8")])


def weights(file):
    for kind in ["i8", "u8", "i4", "u4"]:
        low, high = RANGE[kind]
        for name, m, n, k, granularity, block, zeros in [
            ("a row", 1, 5, 64, "block", 32, False),
            ("zero points", 3, 4, 96, "block", 32, True),
            ("small blocks", 2, 3, 48, "block", 16, True),
            ("odd blocks", 2, 3, 40, "block", 12, True),
            ("rows", 6, 7, 34, "channel", 0, True),
            ("tensor", 2, 9, 20, "tensor", 0, False),
        ]:
            q = file.random.integers(low, high, (n, k), endpoint=True)
            shape = {"tensor": (), "channel": (n,), "block": (n, -(-k // block) if block else 0)}[granularity]
            scale = file.random.uniform(0.01, 0.1, shape).astype(np.float32)
            zero = file.random.integers(max(low, -5), min(high, 9), shape) if zeros else np.zeros(shape, np.int64)
            s = spread(wide(scale), q.shape, granularity, 0, block)
            z = spread(zero, q.shape, granularity, 0, block)
            for dtype in ["f32", "bf16"]:
                x = file.draw(dtype, (m, k))
                y = wide(x) @ ((q - z) * s).T
                attributes = {"kind": kind, "granularity": granularity, "block": block}
                inputs = [(x, dtype), (held(q, kind), HELD[kind]), (scale, "f32"), (np.asarray(zero, np.int32), "i32")]
                file.case(f"{name} {kind} {dtype}", attributes, inputs, [(y, dtype)])


ROOMS = {"quantize": conversions, "integer_matmul": products, "quantized_matmul": weights}
