"""Golden cases of what moves elements: copies, permutations, concatenations, splits, picks, sorts, borders."""

import numpy as np

import by_onnx
from make import COMPLEX, FLOATS, NUMPY, apply, cast

COMPUTED = [dtype for dtype in NUMPY if dtype != "i16"]
"""i16 is moved and quantised to, but neither combined nor ordered."""


def copy(file, name, dtype, x, view):
    file.case(f"copy {name} {dtype}", {"kind": "copy"}, [(x, dtype, view)], [(apply(x, view), dtype)])


def permute(file, dtype, x, order):
    file.case(f"permute {order} {dtype}", {"kind": "permute", "order": order}, [(x, dtype)], [(x.transpose(order), dtype)])


def copies(file):
    for dtype in NUMPY:
        permute(file, dtype, file.draw(dtype, (9, 17)), [1, 0])
        permute(file, dtype, file.draw(dtype, (2, 3, 4)), [2, 0, 1])
        permute(file, dtype, file.draw(dtype, (2, 3, 1, 4)), [3, 1, 0, 2])
        copy(file, "backwards", dtype, file.draw(dtype, (3, 7)), [("slice", 1, 0, 7, -2)])
        copy(file, "broadcast", dtype, file.draw(dtype, (1, 4)), [("broadcast", [3, 4])])
        copy(file, "transposed", dtype, file.draw(dtype, (5, 4)), [("transpose",)])
        parts = [file.draw(dtype, (2, n, 3)) for n in (1, 4, 0, 2)]
        stored = [(p, dtype) for p in parts]
        file.case(f"concat {dtype}", {"kind": "concat", "axis": 1}, stored, [(np.concatenate(parts, 1), dtype)])
        x = file.draw(dtype, (4, 6))
        pieces = np.split(x, [1, 3, 3], axis=-1)
        attributes = {"kind": "split", "axis": -1, "sizes": [1, 2, 0, 3]}
        file.case(f"split {dtype}", attributes, [(x, dtype)], [(p, dtype) for p in pieces])
    file.case("empty f32", {"kind": "permute", "order": [1, 0]}, [(file.draw("f32", (0, 3)), "f32")], [(np.zeros((3, 0)), "f32")])
    special = np.array([[np.nan, np.inf], [-0.0, -np.inf]], np.float32)
    permute(file, "f32", special, [1, 0])


def gathers(file):
    for dtype in NUMPY:
        for axis, shape in [(0, (5, 3)), (1, (2, 4, 3)), (-1, (3, 6))]:
            x = file.draw(dtype, shape)
            n = shape[axis]
            for ids in ["i64", "i32", "u32"]:
                low = 0 if ids == "u32" else -n
                list_ = file.random.integers(low, n, 4).astype(NUMPY[ids])
                attributes = {"along": False, "axis": axis}
                taken = np.take(x, list_, axis=axis)
                file.case(f"rows {axis} {dtype} {ids}", attributes, [(x, dtype), (list_, ids)], [(taken, dtype)])
            sizes = list(shape)
            sizes[axis] = 5
            each = file.random.integers(-n, n, sizes)
            picked = np.take_along_axis(x, each, axis=axis)
            file.case(f"along {axis} {dtype}", {"along": True, "axis": axis}, [(x, dtype), (each, "i64")], [(picked, dtype)])
    x, table = file.draw("f32", (7, 4)), file.random.integers(0, 7, (2, 3))
    file.case("embedding", {"along": False, "axis": 0}, [(x, "f32"), (table, "i64")], [(x[table], "f32")])
    view = [("transpose",)]
    taken = np.take(x.T, [3, 0, -1], axis=0)
    file.case("transposed", {"along": False, "axis": 0}, [(x, "f32", view), (np.array([3, 0, -1]), "i64")], [(taken, "f32")])
    by_onnx.gathers(file)


RULES = {"add": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}


def scatters(file):
    for dtype in COMPUTED:
        for rule in ["set", *RULES]:
            if dtype in COMPLEX and rule in ("max", "min"):
                continue
            x = file.draw(dtype, (5, 4))
            # Rows, with repeated indices.
            index = file.random.integers(-5, 5, 7)
            source = file.draw(dtype, (7, 4))
            out = x.copy()
            for i, row in zip(index, source):
                out[i] = row if rule == "set" else cast(RULES[rule](out[i], row), dtype)
            attributes = {"along": False, "axis": 0, "combine": rule}
            file.case(f"rows {rule} {dtype}", attributes, [(x, dtype), (index, "i64"), (source, dtype)], [(out, dtype)])
            # An index for each element, fewer rows than the target.
            index = file.random.integers(0, 4, (3, 6))
            source = file.draw(dtype, (3, 6))
            out = x.copy()
            for i, j in np.ndindex(3, 6):
                at = (i, index[i, j])
                out[at] = source[i, j] if rule == "set" else cast(RULES[rule](out[at], source[i, j]), dtype)
            attributes = {"along": True, "axis": 1, "combine": rule}
            file.case(f"along {rule} {dtype}", attributes, [(x, dtype), (index, "i64"), (source, dtype)], [(out, dtype)])
    by_onnx.scatters(file)


def order(x, axis, descending):
    """Stable indices in order, NaN as the largest; numpy sorts upwards only."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    # Backwards twice keeps equal elements in their order.
    flipped = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - flipped


def sorts(file):
    for dtype in [d for d in COMPUTED if d not in COMPLEX]:
        for axis, shape in [(0, (9,)), (-1, (3, 20)), (0, (13, 4)), (1, (2, 6, 3))]:
            for descending in (False, True):
                x = file.draw(dtype, shape)
                if dtype in FLOATS and axis != 1:
                    x.reshape(-1)[:5] = cast([np.nan, -0.0, np.inf, 0.0, -np.inf], dtype)
                places = order(x, axis, descending)
                values = np.take_along_axis(x, places, axis)
                attributes = {"axis": axis, "descending": descending}
                for kind, outputs in [("sort", [(values, dtype)]), ("argsort", [(places, "i64")]), ("both", [(values, dtype), (places, "i64")])]:
                    if kind == "both" and axis != 0:
                        continue
                    file.case(f"{kind} {axis} {dtype}", {"kind": kind, **attributes}, [(x, dtype)], outputs)
                k = 4
                first = np.take(values, range(k), axis), np.take(places, range(k), axis)
                file.case(f"topk {axis} {dtype}", {"kind": "topk", "k": k, **attributes}, [(x, dtype)], [(first[0], dtype), (first[1], "i64")])
    # torch counts NaN as the largest too.
    import torch

    x = file.draw("f32", (2, 30))
    x[0, 7] = np.nan
    for largest in (True, False):
        values, places = torch.topk(torch.from_numpy(x), 3, dim=1, largest=largest)
        attributes = {"kind": "topk", "k": 3, "axis": 1, "descending": largest}
        file.case("topk by torch", attributes, [(x, "f32")], [(values.numpy(), "f32"), (places.numpy(), "i64")])
    view = [("slice", 1, 0, 30, -2)]
    backwards = apply(x, view)
    file.case("backwards", {"kind": "sort", "axis": 1, "descending": False}, [(x, "f32", view)], [(np.sort(backwards, axis=1), "f32")])
    by_onnx.tops(file)


def borders(file):
    for dtype in NUMPY:
        for shape, widths in [((3,), [[2, 4]]), ((3, 4), [[0, 1], [3, 2]]), ((2, 1, 3), [[1, 1], [0, 0], [4, 7]])]:
            x = file.draw(dtype, shape)
            for mode in ("constant", "edge", "reflect", "wrap"):
                more = {"constant_values": 1} if mode == "constant" else {}
                attributes = {"mode": mode, "widths": widths, "value": 1.0}
                file.case(f"{mode} {dtype}", attributes, [(x, dtype)], [(np.pad(x, widths, mode, **more), dtype)])
    x, view = file.draw("f32", (4, 3)), [("transpose",), ("slice", 0, 0, 3, -1)]
    wanted = np.pad(apply(x, view), [[1, 0], [0, 2]], "reflect")
    file.case("turned and backwards", {"mode": "reflect", "widths": [[1, 0], [0, 2]]}, [(x, "f32", view)], [(wanted, "f32")])
    by_onnx.borders(file)


ROOMS = {"copy": copies, "gather": gathers, "scatter": scatters, "sort": sorts, "pad": borders}
