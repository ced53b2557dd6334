"""Golden cases of softmax and log-softmax."""

import numpy as np

from make import FLOATS, apply, cast, wide


def softmax(file, name, dtype, x, axis=-1, view=()):
    operand = wide(apply(x, view))
    top = operand.max(axis=axis, keepdims=True, initial=-np.inf)
    shifted = operand - top
    # Infinities: inf - inf is not a number, as it is in every kernel.
    powers = np.exp(shifted)
    total = powers.sum(axis=axis, keepdims=True)
    for kind, result in [("softmax", powers / total), ("log_softmax", shifted - np.log(total))]:
        file.case(f"{kind} {name} {dtype}", {"log": kind == "log_softmax", "axis": axis}, [(x, dtype, view)], [(result, dtype)])


def cases(file):
    for dtype in FLOATS:
        softmax(file, "rows", dtype, file.draw(dtype, (5, 13), -5, 5))
        softmax(file, "long row", dtype, file.draw(dtype, (1, 70), -5, 5))
        softmax(file, "first axis", dtype, file.draw(dtype, (7, 5), -5, 5), axis=0)
        softmax(file, "middle axis", dtype, file.draw(dtype, (2, 6, 3), -5, 5), axis=-2)
        softmax(file, "one element", dtype, file.draw(dtype, (3, 1)), axis=1)
        softmax(file, "rank 1", dtype, file.draw(dtype, (9,)), axis=0)
        softmax(file, "no rows", dtype, file.draw(dtype, (0, 4)), axis=1)
        softmax(file, "empty rows", dtype, file.draw(dtype, (3, 0)), axis=1)
        softmax(file, "transposed", dtype, file.draw(dtype, (6, 4), -5, 5), view=[("transpose",)])
        softmax(file, "strided backwards", dtype, file.draw(dtype, (4, 17), -5, 5), view=[("slice", 1, 0, 17, -2)])
        softmax(file, "broadcast", dtype, file.draw(dtype, (1, 6), -5, 5), view=[("broadcast", [3, 6])])
        softmax(file, "large", dtype, cast(np.array([[10000.0, 10001.0, 9000.0], [-10000.0, -10001.0, -10002.0]]), dtype))
        masked = file.draw(dtype, (4, 6), -3, 3)
        masked[0, 2:] = -np.inf
        masked[1, :] = -np.inf
        masked[2, 3] = np.nan
        masked[3, 1] = np.inf
        softmax(file, "masked, infinite and not a number", dtype, masked)
