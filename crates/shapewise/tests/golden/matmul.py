"""Golden cases of the matrix product."""

import numpy as np
from scipy.special import erf

from make import FLOATS, apply, wide

ACTIVATIONS = {
    "none": lambda x: x,
    "relu": lambda x: np.where(x > 0, x, np.where(np.isnan(x), x, 0)),
    "leaky_relu(0.1)": lambda x: np.where(x > 0, x, np.float64(np.float32(0.1)) * x),
    "gelu": lambda x: 0.5 * x * (1 + erf(x / np.sqrt(2))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


def product(file, name, dtype, a, b, bias=None, activation="none", views=((), ())):
    x, y = apply(wide(a), views[0]), apply(wide(b), views[1])
    result = x @ y
    inputs = [(a, dtype, views[0]), (b, dtype, views[1])]
    if bias is not None:
        result = result + wide(bias)
        inputs.append((bias, dtype))
    result = ACTIVATIONS[activation](result)
    attributes = {"bias": bias is not None, "activation": activation}
    file.case(f"{name} {dtype}", attributes, inputs, [(result, dtype)])


def cases(file):
    for dtype in FLOATS:
        shapes = [(1, 1, 1), (2, 3, 4), (7, 5, 3), (4, 8, 16), (7, 9, 17), (1, 5, 19), (19, 5, 1), (4, 0, 3), (0, 3, 2), (2, 65, 3)]
        for m, k, n in shapes:
            product(file, f"{m}x{k}x{n}", dtype, file.draw(dtype, (m, k)), file.draw(dtype, (k, n)))
        transpose = [("transpose",)]
        product(file, "a transposed", dtype, file.draw(dtype, (6, 5)), file.draw(dtype, (6, 9)), views=(transpose, ()))
        product(file, "b transposed", dtype, file.draw(dtype, (5, 6)), file.draw(dtype, (9, 6)), views=((), transpose))
        product(file, "both transposed", dtype, file.draw(dtype, (6, 5)), file.draw(dtype, (9, 6)), views=(transpose, transpose))
        product(file, "strided", dtype, file.draw(dtype, (9, 8)), file.draw(dtype, (10, 14)),
                views=([("slice", 0, 1, 9, 2), ("slice", 1, 2, 7, 1)], [("slice", 0, 0, 10, 2), ("slice", 1, 0, 14, -3)]))
        product(file, "batched", dtype, file.draw(dtype, (3, 4, 5)), file.draw(dtype, (3, 5, 2)))
        product(file, "broadcast batches", dtype, file.draw(dtype, (2, 1, 3, 4)), file.draw(dtype, (3, 4, 5)))
        product(file, "one b for all batches", dtype, file.draw(dtype, (4, 3, 6)), file.draw(dtype, (6, 5)))
        product(file, "vector by matrix", dtype, file.draw(dtype, (7,)), file.draw(dtype, (7, 5)))
        product(file, "matrix by vector", dtype, file.draw(dtype, (5, 7)), file.draw(dtype, (7,)))
        product(file, "vector by vector", dtype, file.draw(dtype, (37,)), file.draw(dtype, (37,)))
        product(file, "row broadcast over a", dtype, file.draw(dtype, (1, 6)), file.draw(dtype, (6, 4)),
                views=([("broadcast", [5, 6])], ()))
        for activation in ACTIVATIONS:
            a, b = file.draw(dtype, (5, 6)), file.draw(dtype, (6, 11))
            product(file, f"bias and {activation}", dtype, a, b, file.draw(dtype, (11,)), activation)
        product(file, "relu without bias", dtype, file.draw(dtype, (3, 4)), file.draw(dtype, (4, 9)), None, "relu")
        product(file, "bias, empty k", dtype, file.draw(dtype, (3, 0)), file.draw(dtype, (0, 4)), file.draw(dtype, (4,)))

        special = file.draw(dtype, (4, 5))
        special[0, 1], special[1, 2], special[2, 3] = np.nan, np.inf, -np.inf
        product(file, "not a number and infinities", dtype, special, file.draw(dtype, (5, 18), 0.5, 2.0))
        zeros = np.zeros_like(special)
        product(file, "infinity times zero", dtype, special, zeros.T.copy())
        # Exactly representable sums: every kernel must give these bits.
        whole = np.arange(-12, 12).reshape(4, 6).astype(special.dtype)
        product(file, "whole numbers", dtype, whole, (whole.T % 3).copy())
