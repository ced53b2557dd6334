"""Quantised numbers against what ONNX says, written with numpy."""

import numpy as np
import pytest

import shapewise as sw


def quantized(x, scale, zero, low, high):
    return np.clip(np.rint(x / scale) + zero, low, high)


@pytest.mark.parametrize("dtype, low, high", [("int8", -128, 127), ("uint8", 0, 255), ("int16", -32768, 32767)])
def test_quantize_and_back(rng, dtype, low, high):
    x = (rng.standard_normal((7, 33)) * 50).astype("float32")
    x[0, :3] = [0.5, 1.5, 1e9]
    q = sw.quantize(x, 0.5, 3, dtype=dtype)
    assert q.dtype == dtype
    np.testing.assert_array_equal(q, quantized(x, np.float32(0.5), 3, low, high))
    np.testing.assert_array_equal(sw.dequantize(q, 0.5, 3), (q.astype("float32") - 3) * np.float32(0.5))


def test_scales_along_an_axis_and_in_blocks(rng):
    x = rng.standard_normal((4, 64)).astype("float32")
    scale = np.array([0.01, 0.02, 0.05, 0.1], "float32")
    q = sw.quantize(x, scale, axis=0)
    np.testing.assert_array_equal(q, quantized(x, scale[:, None], 0, -128, 127))
    blocks = rng.uniform(0.01, 0.1, (4, 2)).astype("float32")
    zeros = rng.integers(-5, 5, (4, 2))
    q = sw.quantize(x, blocks, zeros, block_size=32)
    np.testing.assert_array_equal(q, quantized(x, blocks.repeat(32, 1), zeros.repeat(32, 1), -128, 127))
    np.testing.assert_allclose(sw.dequantize(q, blocks, zeros, block_size=32), x, atol=0.06)


def test_four_bits_lie_two_in_a_byte(rng):
    x = rng.standard_normal((3, 64)).astype("float32")
    q, scale, zero_point = sw.quantize_int4(x)
    assert q.dtype == "uint8" and q.shape == (3, 32) and scale.shape == (3, 2) and not zero_point.any()
    nibbles = np.stack([q & 15, q >> 4], -1).reshape(3, 64).astype("int8")
    signed = np.where(nibbles > 7, nibbles - 16, nibbles)
    back = sw.dequantize(q, scale, dtype="int4", block_size=32)
    np.testing.assert_array_equal(back, signed * scale.repeat(32, 1))
    assert np.abs(back - x).max() <= scale.max() / 2 * 1.0001


@pytest.mark.parametrize("symmetric", [True, False])
def test_weights_of_four_bits(rng, symmetric):
    w = rng.standard_normal((10, 96)).astype("float32")
    x = rng.standard_normal((3, 96)).astype("float32")
    q, scale, zero_point = sw.quantize_int4(w, symmetric=symmetric)
    dtype = "int4" if symmetric else "uint4"
    packed = sw.pack_quantized(q, scale, zero_point, dtype=dtype, block_size=32)
    assert packed.shape == (10, 96) and packed.nbytes < w.nbytes / 2
    expected = x @ sw.dequantize(q, scale, zero_point, dtype=dtype, block_size=32).T
    np.testing.assert_allclose(sw.matmul_quantized(x, packed), expected, rtol=1e-4, atol=1e-4)


def test_matmul_integer(rng):
    a = rng.integers(0, 256, (5, 40), "uint8")
    b = rng.integers(-128, 128, (40, 7), "int8")
    wide = lambda x: x.astype("int32")
    np.testing.assert_array_equal(sw.matmul_integer(a, b), wide(a) @ wide(b))
    columns = rng.integers(-9, 9, 7, "int8")
    y = sw.matmul_integer(a, b, a_zero_point=12, b_zero_point=columns)
    np.testing.assert_array_equal(y, (wide(a) - 12) @ (wide(b) - columns))


def test_qmatmul(rng):
    a = rng.integers(0, 256, (4, 33), "uint8")
    b = rng.integers(-128, 128, (33, 6), "int8")
    scales = rng.uniform(0.01, 0.02, 6).astype("float32")
    y = sw.qmatmul(a, 0.02, 110, b, scales, 0, 0.3, 100)
    sums = (a.astype("int64") - 110) @ b.astype("int64")
    expected = quantized(sums * (np.float32(0.02) * scales).astype("float64"), 0.3, 100, 0, 255)
    assert y.dtype == "uint8" and np.abs(y.astype(int) - expected).max() <= 1
    assert (y == expected).mean() > 0.95


def test_qconv2d(rng):
    x = rng.integers(0, 256, (2, 3, 9, 9), "uint8")
    w = rng.integers(-20, 20, (4, 3, 3, 3), "int8")
    bias = rng.integers(-500, 500, 4, "int32")
    y = sw.qconv2d(x, 0.02, 128, w, 0.05, 0, 0.6, 100, bias=bias, stride=2, padding=1)
    real = sw.conv2d((x.astype("float32") - 128), w.astype("float32"), bias.astype("float32"), stride=2, padding=1)
    expected = quantized(real * np.float32(0.001), 0.6, 100, 0, 255)
    assert y.shape == (2, 4, 5, 5) and y.dtype == "uint8"
    assert np.abs(y.astype(int) - expected).max() <= 1 and (y == expected).mean() > 0.95


@pytest.mark.parametrize("method", ["minmax", "percentile", "entropy", "mse"])
def test_calibrate(rng, method):
    x = rng.standard_normal(5000).astype("float32")
    scale, zero_point = sw.calibrate(x, method=method, percentile=99.0)
    assert zero_point == 0 and 0 < scale <= np.abs(x).max() / 127 * 1.0001
    back = sw.dequantize(sw.quantize(x, scale), scale)
    assert np.abs(back - x).mean() < 0.02


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: sw.quantize(x, 0.0), "positive"),
        (lambda x: sw.quantize(x, float("nan")), "positive"),
        (lambda x: sw.quantize(x, [0.1, 0.2]), "axis"),
        (lambda x: sw.quantize(x, [0.1, 0.2], axis=0, block_size=2), "not both"),
        (lambda x: sw.quantize(x, 0.1, dtype="int7"), "int8"),
        (lambda x: sw.quantize(x, 0.1, 300), "300"),
        (lambda x: sw.quantize(x[:, :3], 0.1, dtype="int4"), "even"),
        (lambda x: sw.calibrate(x, method="best"), "minmax"),
        (lambda x: sw.qmatmul(x.astype("int8"), 1, 0, x.astype("int8"), 1, 0, 1, 0), "4"),
    ],
)
def test_mistakes(rng, call, message):
    with pytest.raises(ValueError, match=message):
        call(rng.standard_normal((3, 4)).astype("float32"))
    with pytest.raises(TypeError):
        sw.quantize(np.ones(3, "float32"), 0.1, 0.5)
