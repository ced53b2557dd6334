"""Fourier transforms with the signatures of ``numpy.fft``."""

from . import default_runtime as _default_runtime
from ._shapewise import Fft as _Fft

_FUNCTIONS = frozenset(name for name in dir(_Fft) if not name.startswith("_"))
__all__ = sorted(_FUNCTIONS)


def __getattr__(name):
    if name in _FUNCTIONS:
        function = globals()[name] = getattr(_default_runtime().fft, name)
        return function
    raise AttributeError(f"module 'shapewise.fft' has no function {name!r}; see dir(shapewise.fft)")


def __dir__():
    return sorted({*globals(), *__all__})
