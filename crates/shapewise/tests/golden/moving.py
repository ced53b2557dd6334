"""Golden cases of what moves elements: copies, permutations, concatenations, splits."""

import numpy as np

from make import NUMPY, apply


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


ROOMS = {"copy": copies}
