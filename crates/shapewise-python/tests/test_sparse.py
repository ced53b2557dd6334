"""Sparse matrices against scipy's."""

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg

import shapewise as sw


def pair(rng, rows=20, columns=30, dtype="float64", format="csr"):
    theirs = scipy.sparse.random(rows, columns, 0.15, format="csr", dtype=dtype, random_state=7)
    ours = {"csr": sw.sparse.csr, "csc": sw.sparse.csc, "coo": sw.sparse.coo, "ell": sw.sparse.ell}
    if format == "bsr":
        return theirs, sw.sparse.bsr(theirs, blocksize=(2, 3))
    return theirs, ours[format](theirs)


FORMATS = ["csr", "csc", "coo", "bsr", "ell"]


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_products(rng, format, dtype):
    theirs, ours = pair(rng, dtype=dtype, format=format)
    assert ours.format == format and ours.shape == (20, 30) and ours.dtype == dtype
    x, many, left = rng.standard_normal(30), rng.standard_normal((30, 5)), rng.standard_normal((4, 20))
    close = dict(rtol=1e-5, atol=1e-5) if dtype == "float32" else dict(rtol=1e-12, atol=1e-12)
    for other in (x, many):
        np.testing.assert_allclose(ours @ other.astype(dtype), theirs @ other.astype(dtype), **close)
    np.testing.assert_allclose(left.astype(dtype) @ ours, left.astype(dtype) @ theirs.toarray(), **close)
    bias = rng.standard_normal(20).astype(dtype)
    np.testing.assert_allclose(sw.sparse.matmul(ours, x.astype(dtype), bias), theirs @ x.astype(dtype) + bias, **close)


@pytest.mark.parametrize("format", FORMATS)
def test_conversions_and_algebra(rng, format):
    theirs, ours = pair(rng, format=format)
    dense = theirs.toarray()
    np.testing.assert_array_equal(ours.toarray(), dense)
    np.testing.assert_array_equal(ours.T.toarray(), dense.T)
    for other in (ours.tocsr(), ours.tocsc(), ours.tocoo(), ours.toell(), ours.tobsr((4, 5))):
        np.testing.assert_array_equal(other.toarray(), dense)
    np.testing.assert_array_equal((ours + ours).toarray(), 2 * dense)
    np.testing.assert_array_equal((ours - ours * 3).toarray(), dense - dense * 3)
    np.testing.assert_array_equal((-ours).toarray(), -dense)
    np.testing.assert_array_equal(ours.multiply(ours).toarray(), dense * dense)
    np.testing.assert_array_equal(ours.maximum(-ours).toarray(), abs(dense))
    np.testing.assert_array_equal(ours.minimum(-ours).toarray(), -abs(dense))
    np.testing.assert_array_equal(abs(ours).toarray(), abs(dense))
    product = ours @ ours.T
    assert isinstance(product, sw.SparseMatrix)
    np.testing.assert_allclose(product.toarray(), dense @ dense.T, rtol=1e-12)


def test_constructors(rng):
    theirs, _ = pair(rng)
    csr = sw.sparse.csr((theirs.data, theirs.indices, theirs.indptr), shape=theirs.shape)
    np.testing.assert_array_equal(csr.toarray(), theirs.toarray())
    np.testing.assert_array_equal(csr.indptr, theirs.indptr)
    assert csr.nnz == theirs.nnz and len(csr.data) == len(csr.indices) == csr.nnz
    csc = theirs.tocsc()
    np.testing.assert_array_equal(
        sw.sparse.csc((csc.data, csc.indices, csc.indptr), shape=csc.shape).toarray(), theirs.toarray()
    )
    blocks = theirs.tobsr((4, 5))
    np.testing.assert_array_equal(
        sw.sparse.bsr((blocks.data, blocks.indices, blocks.indptr), shape=blocks.shape).toarray(), theirs.toarray()
    )
    twice = sw.sparse.coo((np.array([1.0, 2.0]), ([1, 1], [2, 2])))
    assert twice.shape == (2, 3) and twice.nnz == 1
    np.testing.assert_array_equal(twice.toarray(), [[0, 0, 0], [0, 0, 3]])


@pytest.mark.parametrize("name", ["cg", "bicgstab", "gmres", "jacobi", "gauss_seidel"])
def test_solvers(rng, name):
    n = 50
    dense = rng.standard_normal((n, n)) * (rng.random((n, n)) < 0.1)
    dense = dense @ dense.T + 60 * np.eye(n)
    b = rng.standard_normal(n)
    x, info = getattr(sw.sparse, name)(sw.sparse.csr(dense), b, rtol=1e-10)
    assert info == 0
    np.testing.assert_allclose(x, np.linalg.solve(dense, b), rtol=1e-7, atol=1e-9)
    _, info = getattr(sw.sparse, name)(sw.sparse.csr(dense), b, rtol=1e-14, maxiter=1)
    assert info == 1


def test_explain_knows_the_matrix(rt, rng):
    _, ours = pair(rng)
    assert rt.explain("sparse.matmul", ours, np.ones(30))["chosen"].startswith("cpu::sparse::")


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: sw.sparse.csr((np.ones(2), [0, 9], [0, 1, 2]), shape=(2, 3)), "9"),
        (lambda: sw.sparse.csr((np.ones(2), [0, 1], [0, 5, 2]), shape=(2, 3)), "offset|row"),
        (lambda: sw.sparse.coo((np.ones(1), ([-1], [0]))), "-1|below"),
        (lambda: sw.sparse.coo((np.ones(0), (np.zeros(0, int), np.zeros(0, int)))), "shape"),
        (lambda: sw.sparse.bsr(np.eye(4)), "blocksize"),
        (lambda: sw.sparse.bsr(np.eye(4), blocksize=(3, 3)), "block"),
        (lambda: sw.sparse.csr((1, 2)), "give a dense array"),
        (lambda: sw.sparse.csr(np.eye(3)) @ np.ones(4), "4"),
        (lambda: sw.sparse.csr(np.eye(3)) + sw.sparse.csr(np.eye(4)), "3"),
    ],
)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
    with pytest.raises(TypeError):
        sw.sparse.csr(np.eye(3, dtype="int32"))
