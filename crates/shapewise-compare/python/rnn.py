"""Times torch and onnxruntime on recurrent layers; prints records as the other contestants write them.

    python rnn.py --threads 2 --json records.json

Each record has workload, peer, threads, build, median_us, p10_us, p90_us, min_us and samples; `shapewise-compare` merges them by
workload and threads. Both answers are compared before they are timed, and the contestants take turns.
"""

import argparse
import json
import sys
import time

import numpy as np
import onnx
import onnxruntime
import torch

SAMPLES = 15
WORKLOADS = {"lstm/64x32_256_512": ("LSTM", 64, 32, 256, 512), "gru/64x32_256_512": ("GRU", 64, 32, 256, 512)}
ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}
"""ONNX keeps gates as i, o, f, c and z, r, h; torch as i, f, g, o and r, z, n."""


def contestants(op, steps, batch, inputs, hidden, threads):
    random = np.random.default_rng(1)
    draw = lambda *shape: random.uniform(-1, 1, shape).astype(np.float32)
    lines, scale = len(ORDER[op]) * hidden, np.float32(hidden**-0.5)
    x, w, r = draw(steps, batch, inputs), draw(lines, inputs) * scale, draw(lines, hidden) * scale
    biases = [draw(lines) * scale for _ in range(2)]
    net = getattr(torch.nn, op)(inputs, hidden).eval()
    for parameter, values in zip(net.parameters(), [w, r] + biases):
        parameter.copy_(torch.from_numpy(values))
    sequence = torch.from_numpy(x)

    turn = lambda v: np.concatenate([np.split(v, len(ORDER[op]))[g] for g in ORDER[op]])
    constants = {"W": turn(w)[None], "R": turn(r)[None], "B": np.concatenate([turn(b) for b in biases])[None]}
    extra = {"linear_before_reset": 1} if op == "GRU" else {}
    node = onnx.helper.make_node(op, ["x", "W", "R", "B"], ["y"], hidden_size=hidden, **extra)
    info = lambda name, shape: onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
    graph = onnx.helper.make_graph(
        [node], op, [info("x", x.shape)], [info("y", (steps, 1, batch, hidden))], [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()]
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    calls = {"torch": lambda: net(sequence)[0].numpy(), "ort": lambda: session.run(None, {"x": x})[0]}
    assert np.allclose(calls["torch"](), calls["ort"]().reshape(steps, batch, hidden), atol=1e-5)
    return calls


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--filter", default="")
    parser.add_argument("--json", default="-")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.set_grad_enabled(False)
    records = []
    for name, sizes in WORKLOADS.items():
        if not any(part in name for part in arguments.filter.split(",")):
            continue
        calls = contestants(*sizes, arguments.threads)
        samples = {peer: [] for peer in calls}
        for turn in range(SAMPLES):
            for peer, call in list(calls.items())[:: 1 if turn % 2 else -1]:
                start = time.perf_counter_ns()
                call()
                samples[peer].append((time.perf_counter_ns() - start) / 1e3)
        for peer, times in samples.items():
            p10, median, p90 = np.percentile(times, [10, 50, 90]).tolist()
            record = {"workload": name, "peer": peer, "threads": arguments.threads, "build": "wheel", "median_us": median}
            records.append(record | {"p10_us": p10, "p90_us": p90, "min_us": min(times), "samples": len(times)})
    text = json.dumps(records, indent=1)
    if arguments.json == "-":
        print(text)
    else:
        with open(arguments.json, "w") as file:
            file.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
