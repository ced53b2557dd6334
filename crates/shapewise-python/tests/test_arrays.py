"""How arrays go in and come out."""

import gc
import threading

import numpy as np
import pytest

import shapewise as sw

TYPES = "float16 float32 float64 int8 uint8 int16 int32 uint32 int64 bool complex64 complex128".split()


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_goes_in_and_comes_out(dtype):
    x = np.arange(12).reshape(3, 4).astype(dtype)
    y = sw.transpose(x)
    assert y.dtype == x.dtype
    np.testing.assert_array_equal(y, x.T)


def test_bfloat16_by_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.array([1.5, -2.0, 3.0], dtype=ml_dtypes.bfloat16)
    y = sw.relu(x)
    assert y.dtype == ml_dtypes.bfloat16
    assert y.astype("float32").tolist() == [1.5, 0.0, 3.0]


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2, ::3],
        lambda x: x[::-1],
        lambda x: x[:, ::-2],
        lambda x: x[1:1],
        lambda x: x[:, None, :],
        lambda x: np.broadcast_to(x[:1], (5, 9)),
    ],
)
def test_views_are_read_where_they_lie(view):
    x = view(np.arange(63, dtype="float32").reshape(7, 9))
    np.testing.assert_array_equal(sw.neg(x), -x)
    np.testing.assert_array_equal(sw.sum(x, axis=0), x.sum(axis=0))


def test_inputs_are_not_copied():
    x = np.zeros(1 << 20, dtype="float32")
    before = sw.sum(x)
    x[:] = 1
    assert (before, sw.sum(x)) == (0, 1 << 20)


def test_odd_memory_is_copied_first():
    swapped = np.arange(6, dtype=">f4").reshape(2, 3)
    np.testing.assert_array_equal(sw.neg(swapped), -swapped.astype("f4"))
    packed = np.zeros(4, dtype=[("a", "i1"), ("b", "f4")])
    packed["b"] = [1, 2, 3, 4]
    np.testing.assert_array_equal(sw.neg(packed["b"]), [-1, -2, -3, -4])


def test_truth_values_that_are_neither_are_refused():
    with pytest.raises(ValueError, match="bool"):
        sw.any(np.array([2, 0], dtype="uint8").view("bool"))


def test_results_are_ordinary_arrays():
    x = np.ones((2, 3), dtype="float32")
    y = sw.add(x, x)
    assert isinstance(y, np.ndarray) and y.flags.writeable and y.flags.c_contiguous and y.flags.aligned
    y[0, 0] = 7
    del x
    gc.collect()
    assert y.tolist() == [[7, 2, 2], [2, 2, 2]]


def test_results_without_axes_are_numbers():
    total = sw.sum(np.ones((2, 3), dtype="float32"))
    assert isinstance(total, np.float32) and total == 6


def test_lists_and_numbers_are_taken():
    assert sw.sum([1, 2, 3]) == 6
    assert sw.add([1.0, 2.0], 1).tolist() == [2.0, 3.0]
    assert sw.mul(2, np.array([1, 2], dtype="int32")).dtype == np.int32
    assert sw.maximum(0.0, np.float32(-1)) == 0


def test_dlpack_is_taken():
    class Foreign:
        def __init__(self, array):
            self.array = array

        def __dlpack__(self, **options):
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self):
            return self.array.__dlpack_device__()

    x = np.arange(6, dtype="float32").reshape(2, 3)
    np.testing.assert_array_equal(sw.neg(Foreign(x)), -x)


def test_torch_tensors_are_taken():
    torch = pytest.importorskip("torch")
    x = torch.arange(6, dtype=torch.float32).reshape(2, 3).T
    np.testing.assert_array_equal(sw.neg(x), -x.numpy())


def test_results_are_handed_on_by_dlpack_without_a_copy():
    y = sw.add(np.ones((2, 3), "float32"), 1)
    assert np.shares_memory(y, np.from_dlpack(y))


def test_results_go_to_torch_without_a_copy():
    torch = pytest.importorskip("torch")
    y = sw.add(np.ones((2, 3), "float32"), 1)
    torch.from_dlpack(y)[0, 0] = 7
    assert y.tolist() == [[7, 2, 2], [2, 2, 2]]


def test_memory_is_given_back():
    resource = pytest.importorskip("resource")
    x = np.ones(1 << 18, dtype="float32")
    for _ in range(50):
        sw.add(x, x)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(500):
        sw.add(x, x)
    # 500 results of 1 MiB would be 512000 KiB.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_many_threads_at_once(rng):
    a = rng.random((65, 33)).astype("float32")
    expected = a @ a.T
    wrong = []

    def work():
        for _ in range(50):
            if not np.allclose(sw.matmul(a, a.T), expected, rtol=1e-4):
                wrong.append(threading.current_thread().name)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
