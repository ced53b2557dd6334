"""Every operation against numpy, or scipy where numpy has none."""

import numpy as np
import pytest
import scipy.signal
import scipy.special

import shapewise as sw

F32 = dict(rtol=2e-5, atol=2e-5)


def f32(rng, *shape):
    return rng.standard_normal(shape).astype("float32")


UNARY = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": lambda x: np.log(x, where=x > 0, out=np.full_like(x, np.nan)),
    "sqrt": lambda x: np.sqrt(x, where=x >= 0, out=np.full_like(x, np.nan)),
    "rsqrt": lambda x: 1 / np.sqrt(x, where=x >= 0, out=np.full_like(x, np.nan)),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sigmoid": scipy.special.expit,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * scipy.special.ndtr(x),
    "silu": lambda x: x * scipy.special.expit(x),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name, rng):
    x = f32(rng, 7, 13)
    np.testing.assert_allclose(getattr(sw, name)(x), UNARY[name](x), **F32)


BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}


@pytest.mark.parametrize("name", BINARY)
def test_binary_broadcasts(name, rng):
    a, b = f32(rng, 5, 1, 4), f32(rng, 3, 1)
    y = getattr(sw, name)(a, b)
    expected = BINARY[name](a, b)
    assert y.dtype == expected.dtype
    np.testing.assert_allclose(y, expected, **F32)


def test_power_where_and_clip(rng):
    x = np.abs(f32(rng, 10)) + 0.1
    np.testing.assert_allclose(sw.power(x, 1.5), x**1.5, **F32)
    np.testing.assert_array_equal(sw.where(x > 1, x, 0.0), np.where(x > 1, x, np.float32(0)))
    np.testing.assert_array_equal(sw.clip(x, 0.5, 1.0), np.clip(x, 0.5, 1.0))
    np.testing.assert_allclose(sw.leaky_relu(-x, 0.1), -x * np.float32(0.1), **F32)


@pytest.mark.parametrize("name", ["sum", "mean", "prod", "max", "min", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(name, axis, keepdims, rng):
    x = f32(rng, 4, 5, 6)
    expected = getattr(np, name)(x, axis=axis, keepdims=keepdims)
    y = getattr(sw, name)(x, axis=axis, keepdims=keepdims)
    assert np.shape(y) == np.shape(expected)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_reductions_over_several_axes(rng):
    x = f32(rng, 4, 5, 6)
    np.testing.assert_allclose(sw.sum(x, axis=(0, 2)), x.sum(axis=(0, 2)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sw.var(x, axis=(1, 2), ddof=1), x.var(axis=(1, 2), ddof=1), rtol=1e-4)
    np.testing.assert_allclose(sw.norm(x, axis=1), np.linalg.norm(x, axis=1), rtol=1e-4)
    np.testing.assert_allclose(sw.norm(x, ord=np.inf), np.abs(x).max())
    assert sw.sum(np.array([1, 2], dtype="int32")).dtype == np.int64


def test_scans(rng):
    x = f32(rng, 3, 8)
    np.testing.assert_allclose(sw.cumsum(x, axis=1), x.cumsum(axis=1), **F32)
    np.testing.assert_allclose(sw.cumsum(x), x.cumsum(), **F32)
    np.testing.assert_allclose(sw.cumprod(x, 0), x.cumprod(0), **F32)
    np.testing.assert_array_equal(sw.cummax(x, 1), np.maximum.accumulate(x, 1))
    np.testing.assert_array_equal(sw.cummin(x, 1), np.minimum.accumulate(x, 1))


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_softmax(axis, rng):
    x = f32(rng, 3, 4, 70)
    np.testing.assert_allclose(sw.softmax(x, axis), scipy.special.softmax(x, axis), **F32)
    np.testing.assert_allclose(sw.log_softmax(x, axis), scipy.special.log_softmax(x, axis), rtol=1e-4, atol=1e-5)


def test_norms(rng):
    x, weight, bias = f32(rng, 2, 6, 5), f32(rng, 5), f32(rng, 5)
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    normal = (x - mean) / np.sqrt(var + 1e-5)
    np.testing.assert_allclose(sw.layer_norm(x, weight=weight, bias=bias), normal * weight + bias, **F32)
    whole = (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5)
    np.testing.assert_allclose(sw.layer_norm(x, axis=1), whole, **F32)
    root = np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(sw.rms_norm(x, weight=weight), x / root * weight, **F32)
    channel, spread = f32(rng, 6), np.abs(f32(rng, 6)) + 0.5
    expected = (x - channel[:, None]) / np.sqrt(spread[:, None] + 1e-5)
    np.testing.assert_allclose(sw.batch_norm(x, channel, spread), expected, **F32)
    grouped = x.reshape(2, 3, 10)
    grouped = (grouped - grouped.mean(-1, keepdims=True)) / np.sqrt(grouped.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(sw.group_norm(x, 3), grouped.reshape(x.shape), **F32)


@pytest.mark.parametrize("shapes", [((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 6))])
def test_matmul(shapes, rng):
    a, b = (f32(rng, *shape) for shape in shapes)
    np.testing.assert_allclose(sw.matmul(a, b), a @ b, **F32)


def test_matmul_with_bias_and_activation(rng):
    a, b, bias = f32(rng, 9, 17), f32(rng, 17, 33), f32(rng, 33)
    np.testing.assert_allclose(sw.matmul(a, b, bias=bias, activation="relu"), np.maximum(a @ b + bias, 0), **F32)


def test_conv2d(rng):
    x, w, bias = f32(rng, 2, 3, 9, 8), f32(rng, 4, 3, 3, 3), f32(rng, 4)
    expected = np.stack(
        [sum(scipy.signal.correlate(x[n, c], w[o, c], "valid") for c in range(3)) + bias[o] for n in range(2) for o in range(4)]
    ).reshape(2, 4, 7, 6)
    np.testing.assert_allclose(sw.conv2d(x, w, bias), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(sw.conv2d(x, w, bias, stride=2), expected[:, :, ::2, ::2], rtol=1e-4, atol=1e-4)
    same = sw.conv2d(x, w, bias, padding="same")
    assert same.shape == (2, 4, 9, 8)
    np.testing.assert_allclose(same[:, :, 1:-1, 1:-1], expected, rtol=1e-4, atol=1e-4)
    last = sw.conv2d(np.ascontiguousarray(x.transpose(0, 2, 3, 1)), w, bias, layout="NHWC")
    np.testing.assert_allclose(last.transpose(0, 3, 1, 2), expected, rtol=1e-4, atol=1e-4)


def test_packed_weights(rng):
    for shape, kernel, options in [
        ((2, 4, 9, 8), (6, 2, 3, 3), {"groups": 2, "padding": 1}),
        ((1, 8, 6, 5), (5, 8, 1, 1), {}),
        ((2, 3, 20), (4, 3, 5), {"stride": 2, "padding": "valid"}),
    ]:
        x, w, bias = f32(rng, *shape), f32(rng, *kernel), f32(rng, kernel[0])
        packed = sw.pack_conv(w, x, **options)
        assert packed.shape == list(kernel)
        plain = sw.conv1d if len(shape) == 3 else sw.conv2d
        expected = plain(x, w, bias, activation="relu", **options)
        found = sw.conv_packed(x, packed, bias, activation="relu", **options)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError):
        sw.pack_conv(f32(rng, 3), f32(rng, 3))


def test_convolutions_along_one_and_three_axes(rng):
    x, w = f32(rng, 1, 1, 20), f32(rng, 1, 1, 5)
    np.testing.assert_allclose(sw.conv1d(x, w)[0, 0], np.correlate(x[0, 0], w[0, 0], "valid"), **F32)
    x, w = f32(rng, 1, 1, 5, 6, 7), f32(rng, 1, 1, 2, 3, 2)
    np.testing.assert_allclose(sw.conv3d(x, w)[0, 0], scipy.signal.correlate(x[0, 0], w[0, 0], "valid"), rtol=1e-4, atol=1e-4)


def test_transposed_convolution_is_the_full_one(rng):
    x, w = f32(rng, 1, 1, 5, 6), f32(rng, 1, 1, 3, 3)
    expected = scipy.signal.convolve(x[0, 0], w[0, 0], "full")
    np.testing.assert_allclose(sw.conv_transpose2d(x, w)[0, 0], expected, rtol=1e-4, atol=1e-4)
    assert sw.conv_transpose2d(x, w, stride=2, padding=1, output_padding=1).shape == (1, 1, 10, 12)


def test_pooling(rng):
    x = f32(rng, 2, 3, 8, 6)
    blocks = x.reshape(2, 3, 4, 2, 3, 2)
    np.testing.assert_array_equal(sw.max_pool2d(x, 2), blocks.max((3, 5)))
    np.testing.assert_allclose(sw.avg_pool2d(x, (2, 2)), blocks.mean((3, 5)), **F32)
    assert sw.max_pool2d(x, 3, stride=2, padding=1).shape == (2, 3, 4, 3)


def test_attention(rng):
    q, k, v = f32(rng, 2, 4, 7, 16), f32(rng, 2, 2, 9, 16), f32(rng, 2, 2, 9, 5)
    scores = q @ np.repeat(k, 2, axis=1).swapaxes(-1, -2) / 4
    np.testing.assert_allclose(sw.attention(q, k, v), scipy.special.softmax(scores, -1) @ np.repeat(v, 2, axis=1), **F32)
    hidden = np.where(np.tri(7, 9, dtype=bool), scores, -np.inf)
    causal = scipy.special.softmax(hidden, -1) @ np.repeat(v, 2, axis=1)
    np.testing.assert_allclose(sw.attention(q, k, v, causal=True), causal, **F32)
    np.testing.assert_allclose(sw.attention(q, k, v, mask=np.tri(7, 9, dtype=bool)), causal, **F32)


LINES = ["fft", "ifft", "rfft", "irfft"]
PLANES = ["fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]


@pytest.mark.parametrize("name", LINES)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_fft_along_one_axis(name, norm, rng):
    x = rng.standard_normal((6, 15))
    for options in [{}, {"axis": 0}, {"n": 8}, {"n": 20}]:
        expected = getattr(np.fft, name)(x, norm=norm, **options)
        np.testing.assert_allclose(getattr(sw.fft, name)(x, norm=norm, **options), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", PLANES)
def test_fft_along_several_axes(name, rng):
    x = rng.standard_normal((4, 6, 10)) + 1j * rng.standard_normal((4, 6, 10))
    x = x.real if name.startswith("r") else x
    for options in [{}, {"axes": (0, 2)}, {"s": (5, 7), "axes": (1, 2)}]:
        expected = getattr(np.fft, name)(x, **options)
        np.testing.assert_allclose(getattr(sw.fft, name)(x, **options), expected, rtol=1e-10, atol=1e-10)


def test_fft_of_integers_and_shifts():
    x = np.arange(7)
    np.testing.assert_allclose(sw.fft.fft(x), np.fft.fft(x), atol=1e-12)
    np.testing.assert_array_equal(sw.fft.fftshift(x), np.fft.fftshift(x))
    np.testing.assert_array_equal(sw.fft.ifftshift(x), np.fft.ifftshift(x))


def test_stft_and_back(rng):
    x = rng.standard_normal(1000)
    spectra = sw.stft(x, 128, hop_length=32)
    assert spectra.shape == (65, 32) and spectra.dtype == np.complex128
    np.testing.assert_allclose(sw.istft(spectra, 128, hop_length=32, length=1000), x, atol=1e-10)


def test_moving(rng):
    x = f32(rng, 4, 5, 6)
    np.testing.assert_array_equal(sw.transpose(x), x.T)
    np.testing.assert_array_equal(sw.transpose(x, (0, -1, 1)), x.transpose(0, 2, 1))
    np.testing.assert_array_equal(sw.concat([x, x[:1]]), np.concatenate([x, x[:1]]))
    pieces = sw.split(x, [2, 3], axis=1)
    np.testing.assert_array_equal(pieces[1], x[:, 2:])
    np.testing.assert_array_equal(sw.pad(x, ((1, 0), (0, 2), (1, 1)), "reflect"), np.pad(x, ((1, 0), (0, 2), (1, 1)), "reflect"))
    np.testing.assert_array_equal(sw.pad(x, 1, value=7.0), np.pad(x, 1, constant_values=7))
    index = np.array([3, 0, -1])
    np.testing.assert_array_equal(sw.take(x, index), x[index])
    np.testing.assert_array_equal(sw.embedding(x[0], np.array([[1, 2], [0, 0]])), x[0][[[1, 2], [0, 0]]])
    along = rng.integers(0, 6, (4, 5, 3))
    np.testing.assert_array_equal(sw.gather(x, along), np.take_along_axis(x, along, -1))
    total = np.zeros((3,), "float32")
    np.add.at(total, [0, 2, 0], [1, 2, 3])
    ones = np.array([1, 2, 3], dtype="float32")
    np.testing.assert_array_equal(sw.scatter(np.zeros(3, "float32"), np.array([0, 2, 0]), ones, mode="add"), total)


def test_sorting(rng):
    x = f32(rng, 3, 1000)
    np.testing.assert_array_equal(sw.sort(x), np.sort(x))
    np.testing.assert_array_equal(sw.argsort(x, axis=0), np.argsort(x, axis=0, kind="stable"))
    np.testing.assert_array_equal(sw.sort(x, descending=True), -np.sort(-x))
    values, places = sw.topk(x, 5)
    np.testing.assert_array_equal(values, -np.sort(-x)[:, :5])
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), values)


def sigmoid(x):
    return scipy.special.expit(x)


def gru_step(x, h, w_ih, w_hh, b_ih, b_hh):
    r, z, n = np.split(x @ w_ih.T + b_ih, 3, -1)
    hr, hz, hn = np.split(h @ w_hh.T + b_hh, 3, -1)
    r, z = sigmoid(r + hr), sigmoid(z + hz)
    return (1 - z) * np.tanh(n + r * hn) + z * h


def test_recurrent_networks_step_by_step(rng):
    steps, batch, inputs, hidden = 5, 3, 4, 6
    x = f32(rng, steps, batch, inputs)
    params = lambda gates: [f32(rng, gates * hidden, n) * 0.3 for n in (inputs, hidden)] + [f32(rng, gates * hidden) for _ in "ab"]
    w_ih, w_hh, b_ih, b_hh = rnn = params(1)
    h = h0 = f32(rng, 1, batch, hidden)
    y, last = sw.rnn(x, rnn, h0)
    for t in range(steps):
        h = np.tanh(x[t] @ w_ih.T + b_ih + h @ w_hh.T + b_hh)
        np.testing.assert_allclose(y[t], h[0], **F32)
    np.testing.assert_allclose(last, h, **F32)

    gru = params(3)
    y, last = sw.gru(x.swapaxes(0, 1), gru, batch_first=True)
    h = np.zeros((batch, hidden), "float32")
    for t in range(steps):
        h = gru_step(x[t], h, *gru)
        np.testing.assert_allclose(y[:, t], h, **F32)
    assert last.shape == (1, batch, hidden)

    lstm = params(4)
    y, (h, c) = sw.lstm(x, lstm)
    assert y.shape == (steps, batch, hidden) and h.shape == c.shape == (1, batch, hidden)
    short, (h2, _) = sw.lstm(x, lstm, lengths=[2, 5, 3])
    np.testing.assert_allclose(h2[0, 0], y[1, 0], **F32)
    assert not short[2:, 0].any()


@pytest.mark.parametrize("cell, gates", [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_packed_weights_of_recurrent_networks(cell, gates, rng):
    x, hidden, params = f32(rng, 5, 3, 4), 6, []
    for inputs in (4, 4, 12, 12):
        params += [f32(rng, gates * hidden, n) * 0.3 for n in (inputs, hidden)] + [f32(rng, gates * hidden) for _ in "ab"]
    packed = sw.pack_rnn(params, cell, num_layers=2, bidirectional=True)
    assert packed.nbytes >= sum(array.nbytes for array in params if array.ndim == 2)
    call = getattr(sw, cell)
    plain = call(x, params, num_layers=2, bidirectional=True)
    np.testing.assert_allclose(call(x, packed, num_layers=2, bidirectional=True)[0], plain[0], **F32)
    with pytest.raises(ValueError, match="packed for 4"):
        call(x, packed)
    with pytest.raises(ValueError, match="cell"):
        sw.pack_rnn(params, "sru", num_layers=2, bidirectional=True)


@pytest.mark.parametrize("name", ["RNN", "GRU", "LSTM"])
def test_recurrent_networks_as_torch(name, rng):
    torch = pytest.importorskip("torch")
    module = getattr(torch.nn, name)(5, 7, num_layers=2, bidirectional=True)
    x = f32(rng, 4, 3, 5)
    with torch.no_grad():
        expected, last = module(torch.from_numpy(x))
    params = [parameter.detach() for parameter in module.parameters()]
    y, ours = getattr(sw, name.lower())(x, params, num_layers=2, bidirectional=True)
    np.testing.assert_allclose(y, expected, **F32)
    for a, b in zip(ours if name == "LSTM" else [ours], last if name == "LSTM" else [last]):
        np.testing.assert_allclose(a, b, **F32)

