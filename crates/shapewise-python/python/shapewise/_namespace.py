"""Modules whose functions are methods of a part of the default runtime."""

from . import default_runtime


def lookup(module, part, kind):
    """``__getattr__`` and ``__dir__`` of a module for the public methods of ``kind``, found in ``default_runtime().part``."""
    functions = frozenset(name for name in dir(kind) if not name.startswith("_"))

    def find(name):
        if name in functions:
            # Kept, so that later calls find the method without coming here.
            function = module[name] = getattr(getattr(default_runtime(), part), name)
            return function
        raise AttributeError(f"module 'shapewise.{part}' has no function {name!r}; see dir(shapewise.{part})")

    return sorted(functions), find, lambda: sorted({*module, *functions})
