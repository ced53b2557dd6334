"""Golden cases of recurrent networks, from torch and from ONNX's definitions of RNN, GRU and LSTM, in f64."""

import numpy as np
import torch
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from make import FLOATS, cast, wide

NETS = {"rnn_tanh": torch.nn.RNN, "rnn_relu": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
GATES = {"rnn_tanh": 1, "rnn_relu": 1, "gru": 3, "lstm": 4}


def tensor(x):
    return torch.from_numpy(np.ascontiguousarray(wide(x)))


def draw_weights(file, op, dtype, inputs, hidden, layers, directions, bias):
    """In torch's order: for each layer and direction w_ih, w_hh, b_ih, b_hh."""
    sets = []
    for layer in range(layers):
        for _ in range(directions):
            lines, width = GATES[op] * hidden, inputs if layer == 0 else directions * hidden
            shapes = [(lines, width), (lines, hidden)] + ([(lines,), (lines,)] if bias else [])
            sets.append([file.draw(dtype, shape, -0.6, 0.6) for shape in shapes])
    return sets


def network(file, name, op, dtype, sizes, layers=1, bidirectional=False, bias=True, batch_first=False, initial=False, lengths=None, single=False):
    steps, batch, inputs, hidden = sizes
    directions = 2 if bidirectional else 1
    shape = (steps, inputs) if single else (batch, steps, inputs) if batch_first else (steps, batch, inputs)
    x = file.draw(dtype, shape)
    sets = draw_weights(file, op, dtype, inputs, hidden, layers, directions, bias)
    options = {"nonlinearity": op.removeprefix("rnn_")} if op.startswith("rnn") else {}
    net = NETS[op](inputs, hidden, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional, **options).double()
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), [w for weights in sets for w in weights], strict=True):
            parameter.copy_(tensor(values))
        state = (layers * directions,) + (() if single else (batch,)) + (hidden,)
        given = [file.draw(dtype, state, -1, 1) for _ in range(2 if op == "lstm" else 1)] if initial else []
        start = [tensor(s) for s in given]
        start = None if not initial else tuple(start) if op == "lstm" else start[0]
        sequence = tensor(x)
        if lengths:
            sequence = torch.nn.utils.rnn.pack_padded_sequence(sequence, torch.tensor(lengths), batch_first, enforce_sorted=False)
        y, last = net(sequence, start)
        if lengths:
            y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, batch_first, total_length=steps)
    last = list(last) if op == "lstm" else [last]
    attributes = {
        "op": op,
        "bidirectional": bidirectional,
        "bias": bias,
        "batch_first": batch_first,
        "sets": layers * directions,
        "lengths": lengths or [],
        "cell": False,
    }
    operands = [x] + [w for weights in sets for w in weights] + given
    file.case(f"{name} {op} {dtype}", attributes, [(v, dtype) for v in operands], [(v.numpy(), dtype) for v in [y] + last])


def cell(file, name, op, dtype, batch, inputs, hidden, bias=True):
    """One step by torch's cell."""
    shape = lambda width: (batch, width) if batch else (width,)
    x = file.draw(dtype, shape(inputs))
    (weights,) = draw_weights(file, op, dtype, inputs, hidden, 1, 1, bias)
    given = [file.draw(dtype, shape(hidden), -1, 1) for _ in range(2 if op == "lstm" else 1)]
    kinds = {"gru": torch.nn.GRUCell, "lstm": torch.nn.LSTMCell}
    options = {"nonlinearity": op.removeprefix("rnn_")} if op.startswith("rnn") else {}
    net = kinds.get(op, torch.nn.RNNCell)(inputs, hidden, bias=bias, **options).double()
    with torch.no_grad():
        for parameter, values in zip(net.parameters(), weights, strict=True):
            parameter.copy_(tensor(values))
        start = [tensor(s) for s in given]
        found = net(tensor(x), tuple(start) if op == "lstm" else start[0])
    found = list(found) if op == "lstm" else [found]
    attributes = {"op": op, "bidirectional": False, "bias": bias, "batch_first": False, "sets": 1, "lengths": [], "cell": True}
    file.case(f"{name} {op} {dtype}", attributes, [(v, dtype) for v in [x] + weights + given], [(v.numpy(), dtype) for v in found])


ONNX = {
    "rnn_tanh": ("RNN", [0], {}),
    "gru": ("GRU", [1, 0, 2], {"linear_before_reset": 1}),
    "lstm": ("LSTM", [0, 3, 1, 2], {}),
}
"""The operator, where its gates are among torch's (z, r, h and i, o, f, c against r, z, n and i, f, g, o), attributes.
The reference implementation knows no relu."""


def defined(file, name, op, dtype, sizes, bidirectional=False, initial=False):
    """One layer by the operator as ONNX's reference implementation computes it."""
    steps, batch, inputs, hidden = sizes
    operator, order, options = ONNX[op]
    directions = 2 if bidirectional else 1
    x = file.draw(dtype, (steps, batch, inputs))
    sets = draw_weights(file, op, dtype, inputs, hidden, 1, directions, True)
    turn = lambda array: np.concatenate([np.split(wide(array), GATES[op])[i] for i in order])
    w, r = (np.stack([turn(weights[i]) for weights in sets]) for i in (0, 1))
    b = np.stack([np.concatenate([turn(weights[2]), turn(weights[3])]) for weights in sets])
    given = [file.draw(dtype, (directions, batch, hidden), -1, 1) for _ in range(2 if op == "lstm" else 1)] if initial else []
    feeds = {"X": wide(x), "W": w, "R": r, "B": b} | dict(zip(["initial_h", "initial_c"], map(wide, given)))
    names = ["X", "W", "R", "B"] + ([""] + list(feeds)[4:] if initial else [])
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "lstm" else [])
    direction = "bidirectional" if bidirectional else "forward"
    node = helper.make_node(operator, names, outputs, hidden_size=hidden, direction=direction, **options)
    info = lambda key, shape=None: helper.make_tensor_value_info(key, TensorProto.DOUBLE, shape)
    graph = helper.make_graph([node], "one", [info(k, v.shape) for k, v in feeds.items()], [info(k) for k in outputs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    y, *last = ReferenceEvaluator(model).run(None, feeds)
    # ONNX has the axis of directions before that of sequences.
    y = y.transpose(0, 2, 1, 3).reshape(steps, batch, directions * hidden)
    attributes = {"op": op, "bidirectional": bidirectional, "bias": True, "batch_first": False, "sets": directions, "lengths": [], "cell": False}
    operands = [x] + [w for weights in sets for w in weights] + given
    file.case(f"ONNX {name} {op} {dtype}", attributes, [(v, dtype) for v in operands], [(v, dtype) for v in [y] + last])


def cases(file):
    for dtype in FLOATS:
        for op in NETS:
            network(file, "one step", op, dtype, (1, 1, 1, 1))
            network(file, "plain", op, dtype, (3, 2, 2, 3))
            cell(file, "cell", op, dtype, 2, 2, 3)
    for op in NETS:
        both = dict(bidirectional=True)
        network(file, "no bias", op, "f32", (3, 2, 3, 3), bias=False)
        network(file, "initial state", op, "f32", (3, 2, 2, 3), initial=True)
        network(file, "two layers", op, "f32", (3, 2, 2, 2), layers=2)
        network(file, "both directions", op, "f32", (3, 2, 2, 3), **both)
        network(file, "two layers, both directions, initial state", op, "f32", (3, 2, 2, 2), layers=2, initial=True, **both)
        network(file, "three layers", op, "f64", (2, 2, 2, 2), layers=3)
        network(file, "lengths", op, "f32", (5, 4, 2, 2), lengths=[3, 5, 1, 4])
        network(file, "lengths, both directions", op, "f32", (5, 3, 2, 2), lengths=[2, 5, 4], **both)
        network(file, "lengths, two layers, initial state", op, "f32", (4, 3, 2, 2), layers=2, lengths=[4, 2, 1], initial=True, **both)
        network(file, "batch first", op, "f32", (4, 3, 2, 2), batch_first=True, initial=True, **both)
        network(file, "batch first, lengths", op, "f32", (4, 3, 2, 3), batch_first=True, lengths=[1, 4, 2])
        network(file, "a single sequence", op, "f32", (4, 1, 2, 3), single=True, initial=True)
        network(file, "odd sizes", op, "f32", (2, 5, 3, 5))
        network(file, "more units than a vector", op, "f32", (2, 1, 1, 9))
        cell(file, "cell without batch", op, "f32", 0, 3, 4)
        cell(file, "cell without bias", op, "f64", 2, 3, 3, bias=False)
    for op in ONNX:
        for dtype in ["f32", "f64"]:
            defined(file, "forward", op, dtype, (3, 2, 2, 3))
        defined(file, "both directions", op, "f32", (3, 2, 3, 2), bidirectional=True)
        defined(file, "initial state", op, "f32", (2, 3, 2, 3), initial=True)
        defined(file, "both directions, initial state", op, "f32", (4, 1, 2, 4), bidirectional=True, initial=True)
