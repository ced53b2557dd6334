"""Runtimes, questions, and what wrong calls are told."""

import doctest

import numpy as np
import pytest

import shapewise as sw


def test_every_function_is_a_method_and_the_other_way_round():
    methods = {name for name in dir(sw.Runtime) if not name.startswith("_")}
    assert methods - {"threads", "flush"} <= set(dir(sw))
    assert {"fft", "ifft2", "rfftn"} <= set(dir(sw.fft))


def test_settings(tmp_path):
    rt = sw.Runtime(device="cpu", threads=1, store=tmp_path / "evidence.sqlite", policy="score")
    assert rt.threads == 1 and "1 thread" in repr(rt)
    x = np.ones((3, 3), "float32")
    assert rt.matmul(x, x).tolist() == [[3.0] * 3] * 3
    assert np.allclose(rt.fft.ifft(rt.fft.fft(x)), x)
    rt.flush()
    assert (tmp_path / "evidence.sqlite").exists()


def test_explain_tells_the_choice(rt):
    x = np.ones((100, 100), "float32")
    why = rt.explain("matmul", x, x, activation="relu")
    assert why["chosen"].startswith("cpu::matmul::")
    assert why["chosen"] in [candidate["kernel"] for candidate in why["candidates"]]
    assert rt.explain("fft.rfft", x)["chosen"].startswith("cpu::fft::")


def test_bench_times_all_candidates(rt):
    entries = rt.bench("softmax", np.ones((64, 100), "float32"))
    medians = [entry["median_seconds"] for entry in entries if entry["median_seconds"] is not None]
    assert len(medians) > 1 and medians == sorted(medians) and medians[0] > 0
    assert sum(entry["chosen"] for entry in entries) == 1


def test_statistics_tell_what_ran(rt):
    x = np.ones((33, 33), "float32")
    for _ in range(3):
        rt.matmul(x, x)
    told = rt.statistics()
    here = [w for w in told["workloads"] if "33" in w["workload"]]
    assert len(here) == 1 and here[0]["executions"] >= 2 and here[0]["switches"] >= 0
    assert here[0]["kernel"] in [k["kernel"] for k in told["kernels"]]
    assert told["accuracy"] and isinstance(told["anomalies"], list)


def test_devices(rt):
    (device,) = rt.devices()
    assert device["backend"] == "cpu" and device["threads"] == 2


X = np.ones((2, 3), "float32")
WRONG = [
    (lambda: sw.matmul(X, X), ValueError, "matmul"),
    (lambda: sw.add(X, X.astype("float64")), TypeError, "cast"),
    (lambda: sw.add(np.arange(3), 1.5), TypeError, "cast"),
    (lambda: sw.add(X, np.ones(4, "float32")), ValueError, "shape|broadcast|4"),
    (lambda: sw.neg(np.ones(3, "uint16")), TypeError, "uint16.*float32"),
    (lambda: sw.neg(np.array(["a"])), TypeError, "not supported"),
    (lambda: sw.sum(X, axis=5), ValueError, "axis 5"),
    (lambda: sw.softmax(np.arange(3)), TypeError, "cast|f32"),
    (lambda: sw.conv2d(X, X), ValueError, "4 axes"),
    (lambda: sw.conv2d(np.ones((1, 2, 4, 4), "float32"), np.ones((1, 2, 3, 3), "float32"), stride=0), ValueError, "stride"),
    (lambda: sw.conv2d(np.ones((1, 2, 4, 4), "float32"), np.ones((1, 2, 3, 3), "float32"), padding="full"), ValueError, "'same'"),
    (lambda: sw.conv2d(np.ones((1, 2, 4, 4), "float32"), np.ones((1, 2, 3, 3), "float32"), layout="CHWN"), ValueError, "NCHW"),
    (lambda: sw.matmul(X, X.T, activation="swish"), ValueError, "silu"),
    (lambda: sw.fft.fft(X, norm="no"), ValueError, "ortho"),
    (lambda: sw.take(X, np.array([9])), ValueError, "9"),
    (lambda: sw.topk(X, 99), ValueError, "99"),
    (lambda: sw.pad(X, 1, "mirror"), ValueError, "reflect"),
    (lambda: sw.Runtime(threads=0), ValueError, "threads"),
    (lambda: sw.Runtime(threads=10**8), ValueError, "below 8192"),
    (lambda: sw.Runtime(device="tpu"), ValueError, "'cpu'"),
    (lambda: sw.Runtime(policy="best"), ValueError, "hybrid"),
    (lambda: sw.explain("matmulx", X, X), AttributeError, "matmulx"),
    (lambda: sw.explain("matmul", X, X), ValueError, "matmul"),
    (lambda: sw.gru(np.ones((2, 3, 4), "float32"), [X]), ValueError, "w_ih, w_hh"),
    (lambda: sw.nothing, AttributeError, "nothing"),
    (lambda: sw.fft.nothing, AttributeError, "nothing"),
    (lambda: sw.neg(np.ones((1,) * 9, "float32")), ValueError, "9 axes"),
]


@pytest.mark.parametrize("call, error, message", WRONG)
def test_wrong_calls_say_what_to_do(call, error, message):
    with pytest.raises(error, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_webgpu_computes_or_says_what_is_missing(rng):
    try:
        rt = sw.Runtime(device="webgpu", store="memory")
    except RuntimeError as error:
        assert "mesa-vulkan-drivers" in str(error)
        pytest.skip("this machine has no WebGPU adapter")
    a, b = rng.standard_normal((17, 33)).astype("float32"), rng.standard_normal((33, 9)).astype("float32")
    np.testing.assert_allclose(rt.matmul(a, b), a @ b, rtol=1e-4, atol=1e-4)
    assert rt.explain("matmul", a, b)["chosen"].startswith("webgpu::matmul::")
    with pytest.raises(RuntimeError, match="only webgpu is allowed"):
        rt.sort(a)


@pytest.mark.parametrize("owner", [sw.Runtime, type(sw.default_runtime().fft)])
def test_examples_in_the_documentation(owner):
    names = [name for name in dir(owner) if not name.startswith("_")]
    assert all(getattr(owner, name).__doc__ for name in names)
    runner = doctest.DocTestRunner()
    finder = doctest.DocTestParser()
    for name in [*names, "__doc__"]:
        text = owner.__doc__ if name == "__doc__" else getattr(owner, name).__doc__
        test = finder.get_doctest(text, {"np": np, "sw": sw}, name, None, None)
        runner.run(test)
    assert runner.summarize().failed == 0


def test_stubs_name_every_function():
    from importlib.resources import files

    stubs = lambda name: files("shapewise").joinpath(name).read_text()
    public = lambda kind: [name for name in dir(kind) if not name.startswith("_")]
    module = stubs("__init__.pyi")
    for name in public(sw.Runtime):
        assert f"    def {name}(" in module, name
        assert f"\ndef {name}(" in module or name in ("fft", "sparse", "threads", "flush"), name
    for part in ("fft", "sparse"):
        for name in public(type(getattr(sw.default_runtime(), part))):
            assert f"def {name}(" in stubs(f"{part}.pyi") and f"    def {name}(self" in module, name
    for name in public(sw.SparseMatrix):
        assert f"    def {name}(self" in stubs("sparse.pyi"), name
