"""What all tests share: a runtime that keeps nothing, and numbers made from a seed."""

import os

# The machine's own store stays as it is.
os.environ["SHAPEWISE_STORE"] = "memory"

import numpy as np
import pytest

import shapewise as sw


@pytest.fixture(scope="session")
def rt():
    return sw.Runtime(threads=2, store="memory")


@pytest.fixture
def rng():
    return np.random.default_rng(20261116)


@pytest.fixture(autouse=True)
def doctest_names(doctest_namespace):
    doctest_namespace.update(np=np, sw=sw)
