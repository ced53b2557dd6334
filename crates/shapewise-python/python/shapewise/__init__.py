"""One call, many kernels: numpy arrays in, numpy arrays out, computed by the fastest kernel for their shapes.

>>> import numpy as np, shapewise as sw
>>> sw.matmul(np.eye(2, dtype="float32"), np.ones((2, 2), "float32")).tolist()
[[1.0, 1.0], [1.0, 1.0]]

Every function is a method of :class:`Runtime`; the module's functions use one default runtime, which is made at the first
call (and measures the machine for about two seconds if that was never done).
"""

from threading import Lock as _Lock

from ._shapewise import ConvWeights, PackedRnn, QuantizedWeights, Runtime, SparseMatrix, __version__

_lock = _Lock()
_default = None


def default_runtime() -> Runtime:
    """The runtime that the module's functions use."""
    global _default
    if _default is None:
        with _lock:
            if _default is None:
                _default = Runtime()
    return _default


_MODULES = ("fft", "sparse")
_FUNCTIONS = frozenset(
    name for name in dir(Runtime) if not name.startswith("_") and name not in (*_MODULES, "threads", "flush")
)
__all__ = ["ConvWeights", "PackedRnn", "QuantizedWeights", "Runtime", "SparseMatrix", "default_runtime", *_MODULES, *sorted(_FUNCTIONS)]


def __getattr__(name):
    if name in _FUNCTIONS:
        # Kept, so that later calls find the method without coming here.
        function = globals()[name] = getattr(default_runtime(), name)
        return function
    if name in _MODULES:
        from importlib import import_module

        return import_module(f".{name}", __name__)
    raise AttributeError(f"module 'shapewise' has no function {name!r}; see dir(shapewise)")


def __dir__():
    return sorted({*globals(), *__all__})
