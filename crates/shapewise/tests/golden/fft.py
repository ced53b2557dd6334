"""Golden cases of the Fourier transforms, of shifts and of the short-time transform: numpy, scipy, torch and ONNX."""

import numpy as np
import scipy.signal
import torch

import by_onnx
from make import apply, wide

KINDS = {"fft": ("c", "c"), "ifft": ("c", "c"), "rfft": ("f", "c"), "irfft": ("c", "f")}
TYPES = {"c": ["c32", "c64"], "f": ["f32", "f64"]}


def fft(file, name, kind, precision, shape, axes=(-1,), lens=None, norm="backward", view=()):
    source, target = (TYPES[t][precision] for t in KINDS[kind])
    x = file.draw(source, shape)
    result = getattr(np.fft, kind + "n")(wide(apply(x, view)), s=lens, axes=axes, norm=norm)
    attributes = {"kind": kind, "axes": list(axes), "lens": list(lens or []), "norm": norm}
    file.case(f"{kind} {name} {norm} {target}", attributes, [(x, source, view)], [(result, target)])


def stft(file, name, precision, samples, frame, hop):
    dtype = TYPES["f"][precision]
    x = file.draw(dtype, samples)
    window = scipy.signal.get_window("hann", frame)
    # scipy divides by the sum of the window.
    _, _, spectra = scipy.signal.stft(
        wide(x), window=window, nperseg=frame, noverlap=frame - hop, boundary=None, padded=False
    )
    result = spectra * window.sum()
    attributes = {"kind": "stft", "frame": frame, "hop": hop, "centred": False}
    file.case(f"stft {name} {dtype}", attributes, [(x, dtype)], [(result, TYPES["c"][precision])])


def centred(file, name, precision, samples, frame, hop):
    """The signal mirrored at its ends, and back again; by torch, whose window is the periodic one too."""
    dtype, target = (TYPES[t][precision] for t in "fc")
    x = file.draw(dtype, samples)
    window = torch.hann_window(frame, dtype=torch.float64)
    more = {"n_fft": frame, "hop_length": hop, "window": window, "center": True}
    spectra = torch.stft(torch.tensor(wide(x)), pad_mode="reflect", return_complex=True, **more)
    attributes = {"kind": "stft", "frame": frame, "hop": hop, "centred": True}
    file.case(f"stft {name} {dtype}", attributes, [(x, dtype)], [(spectra.numpy(), target)])
    # Spectra of no signal, whose frames contradict each other: the answer is the nearest.
    stored = file.draw(target, spectra.shape)
    stored[..., 0, :], stored[..., -1, :] = stored[..., 0, :].real, stored[..., -1, :].real
    back = torch.istft(torch.tensor(wide(stored)), length=samples[-1], **more)
    attributes |= {"kind": "istft", "length": samples[-1]}
    file.case(f"istft {name} {dtype}", attributes, [(stored, target)], [(back.numpy(), dtype)])


def shift(file, name, dtype, shape, axes):
    x = file.draw(dtype, shape)
    for kind in ["fftshift", "ifftshift"]:
        attributes = {"kind": kind, "axes": axes}
        file.case(f"{kind} {name} {dtype}", attributes, [(x, dtype)], [(getattr(np.fft, kind)(x, axes), dtype)])


def cases(file):
    for precision in [0, 1]:
        for kind in KINDS:
            for n in [1, 2, 3, 5, 8, 13, 16, 37, 60]:
                # Half a spectrum of n points; an odd length cannot be told from it.
                half = n // 2 + 1
                fft(file, f"of {n}", kind, precision, (half if kind == "irfft" else n,), lens=(n,))
            for norm in ["ortho", "forward"]:
                fft(file, "of 12", kind, precision, (7 if kind == "irfft" else 12,), lens=(12,), norm=norm)
            fft(file, "first axis", kind, precision, (6, 3), axes=(0,))
            fft(file, "cut", kind, precision, (2, 9), lens=(5,))
            fft(file, "filled up", kind, precision, (2, 4), lens=(10,))
            fft(file, "two axes", kind, precision, (2, 4, 5), axes=(-2, -1))
            fft(file, "two axes turned", kind, precision, (4, 2, 5), axes=(2, 0), norm="ortho")
            fft(file, "all axes", kind, precision, (3, 4, 2), axes=(0, 1, 2))
            fft(file, "transposed", kind, precision, (5, 4), view=[("transpose",)])
            fft(file, "backwards", kind, precision, (2, 9), view=[("slice", 1, 0, 9, -2)])
            fft(file, "broadcast", kind, precision, (1, 6), view=[("broadcast", [3, 6])])
        stft(file, "frames of 16", precision, (60,), 16, 4)
        stft(file, "odd frames", precision, (2, 50), 9, 5)
        centred(file, "frames of 16, centred", precision, (60,), 16, 4)
        centred(file, "frames of 10, centred", precision, (2, 41), 10, 3)
    for dtype in ["c32", "f64", "i32"]:
        shift(file, "odd", dtype, (5,), [0])
        shift(file, "plane", dtype, (4, 5), [0, 1])
        shift(file, "last axis", dtype, (2, 6), [1])
    by_onnx.spectra(file)
