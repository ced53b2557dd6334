"""Fourier transforms with the signatures of ``numpy.fft``."""

from ._namespace import lookup as _lookup
from ._shapewise import Fft as _Fft

__all__, __getattr__, __dir__ = _lookup(globals(), "fft", _Fft)
