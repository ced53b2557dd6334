"""Sparse matrices with scipy's constructors and operators, and solvers on top of them.

>>> import numpy as np, shapewise as sw
>>> a = sw.sparse.coo((np.array([2.0, 3.0]), ([0, 1], [1, 0])), shape=(2, 2))
>>> (a @ np.array([1.0, 10.0])).tolist()
[20.0, 3.0]
"""

from ._namespace import lookup as _lookup
from ._shapewise import Sparse as _Sparse, SparseMatrix

_functions, __getattr__, __dir__ = _lookup(globals(), "sparse", _Sparse)
__all__ = ["SparseMatrix", *_functions]
