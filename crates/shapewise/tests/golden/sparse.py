"""Sparse matrices: products, algebra and conversions as scipy.sparse computes them."""

import numpy as np
import scipy.sparse as sp


def entries(file, structure, rows, columns):
    """Rows and columns of entries, not sorted, some of them twice."""
    r = file.random
    if structure == "power law":
        i = np.minimum((r.pareto(1.0, 60)).astype(int), rows - 1)
        j = r.integers(0, columns, 60)
    elif structure == "banded":
        i = np.repeat(np.arange(rows), 3)
        j = np.clip(i * columns // rows + np.tile([-1, 0, 1], rows), 0, columns - 1)
    elif structure == "blocks":
        at = r.integers(0, rows // 4, 4) * 4, r.integers(0, columns // 4, 4) * 4
        i = (at[0][:, None] + np.repeat(np.arange(4), 4)).reshape(-1)
        j = (at[1][:, None] + np.tile(np.arange(4), 4)).reshape(-1)
    elif structure == "empty rows":
        i = r.integers(0, rows // 3, 30) * 3
        j = r.integers(0, columns, 30)
    elif structure == "empty":
        i = j = np.zeros(0, int)
    else:
        i, j = r.integers(0, rows, 50), r.integers(0, columns, 50)
    order = r.permutation(len(i))
    return i[order].astype(np.int64), j[order].astype(np.int64)


def matrix(file, structure, rows, columns, dtype):
    i, j = entries(file, structure, rows, columns)
    v = file.draw(dtype, (len(i),))
    a = sp.coo_array((v.astype(np.float64), (i, j)), shape=(rows, columns)).tocsr()
    return (v, i, j), a


def cases(file):
    structures = ["random", "power law", "banded", "blocks", "empty rows", "empty"]
    for structure in structures:
        for dtype in ["f32", "f64"]:
            rows, columns = 8, 12
            parts, a = matrix(file, structure, rows, columns, dtype)
            other, b = matrix(file, "random", rows, columns, dtype)
            inputs = [(v, d) for v, d in zip(parts, [dtype, "i64", "i64"])]
            seconds = [(v, d) for v, d in zip(other, [dtype, "i64", "i64"])]
            for n in [0, 5]:
                x = file.draw(dtype, (columns, n) if n else (columns,))
                bias = file.draw(dtype, (rows, 1) if n else (rows,))
                y = a @ x.astype(np.float64) + bias
                name = f"{structure} times {n or 'a vector'} {dtype}"
                shape = {"shape": [rows, columns], "what": "linear"}
                file.case(name, shape, [*inputs, (x, dtype), (bias, dtype)], [(y, dtype)])
            for what, result in [
                ("dense", a),
                ("transpose", a.T),
                ("add", a + b),
                ("multiply", a.multiply(b)),
                ("product", a @ b.T),
                ("subtract", a - b),
                ("maximum", a.maximum(b)),
                ("minimum", a.minimum(b)),
            ]:
                attributes = {"shape": [rows, columns], "what": what}
                file.case(f"{structure} {what} {dtype}", attributes, inputs + seconds, [(result.toarray(), dtype)])
    solutions(file)


def solutions(file):
    """Systems with a strong diagonal, solved directly."""
    n = 12
    for name, symmetric in [("symmetric", True), ("general", False)]:
        (v, i, j), a = matrix(file, "random", n, n, "f64")
        whole = a.toarray()
        if symmetric:
            whole = whole + whole.T
        whole = (whole + np.diag(np.abs(whole).sum(axis=1) + 1)).round(3)
        s = sp.coo_array(whole)
        b = file.draw("f64", (n,))
        inputs = [(s.data, "f64"), (s.row.astype(np.int64), "i64"), (s.col.astype(np.int64), "i64"), (b, "f64")]
        attributes = {"shape": [n, n], "what": "solve", "symmetric": symmetric}
        file.case(f"{name} system", attributes, inputs, [(np.linalg.solve(whole, b), "f64")])
