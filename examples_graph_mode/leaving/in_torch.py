"""The training in PyTorch.

python -m leaving.in_torch FOLDER STEPS BATCH_SIZE
"""

import json
import sys
from pathlib import Path

import numpy as np
import torch

from legacy_opt.recorded import state_files, torch_state
from legacy_opt.recorded.torch import RecordedOptimizer

from . import KEPT

TABLES = ("embeddings", "wide")  # their gradients are sparse


def parameters_of(state):
    """Returns a dict from names to parameters with the values of a state."""
    return {
        name: torch.nn.Parameter(torch.from_numpy(state.variables[name].copy()))
        for name in sorted(state.slots)
    }


def recorded_optimizer(parameters, state):
    """Returns the optimizer with the recorded rule and the state of the Session."""
    optimizer = RecordedOptimizer(list(parameters.items()), state.record)
    torch_state.load_state(optimizer, state)
    return optimizer


def own_adagrad(parameters, state):
    """Returns PyTorch's Adagrad with the accumulators of the Session."""
    rate = state.record.hyperparameters["learning_rate"].value
    optimizer = torch.optim.Adagrad(parameters.values(), lr=rate)
    for name, parameter in parameters.items():
        optimizer.state[parameter]["sum"].copy_(torch.from_numpy(state.slots[name]["accumulator"]))
    return optimizer


def own_adam(parameters, state):
    """Returns PyTorch's Adam; the Session has no moments for it."""
    del state
    return torch.optim.Adam(parameters.values(), lr=1e-3)


def set_gradient(parameter, ids, rows):
    """Sets the gradient of a table: the gradients of its rows."""
    rows = rows.reshape(len(ids), *parameter.shape[1:])
    parameter.grad = torch.sparse_coo_tensor(ids[None], rows, parameter.shape)


def differing_bits(state, stayed):
    """Trains on the gradients of the Session; returns how many bits of the weights differ."""
    parameters = parameters_of(state)
    optimizer = recorded_optimizer(parameters, state)
    for step in range(KEPT):
        for name, parameter in parameters.items():
            first = torch.from_numpy(stayed[f"gradient/{step}/0/{name}"])
            if name in TABLES:
                set_gradient(
                    parameter, first, torch.from_numpy(stayed[f"gradient/{step}/1/{name}"])
                )
            else:
                parameter.grad = first
        optimizer.step()
    bits = numbers = 0
    for name, parameter in parameters.items():
        found = parameter.detach().numpy().reshape(-1).view(np.uint32)
        expected = stayed[f"value/{name}"].reshape(-1).view(np.uint32)
        bits += int(np.unpackbits((found ^ expected).view(np.uint8)).sum())
        numbers += found.size
    return {"bits": bits, "numbers": numbers}


def forward(weights, rows, dense):
    """Returns the logits; `rows` is a dict with the rows of the tables, as in flights/model.py."""
    embedded = rows["embeddings"].flatten(1)
    hidden = torch.cat([embedded, dense], 1) @ weights["hidden_weights"] + weights["hidden_bias"]
    logits = weights["bias"] + rows["wide"].sum(1) + (dense @ weights["wide_dense"])[:, 0]
    return logits + (torch.relu(hidden) @ weights["output_weights"])[:, 0]


def trained(flights, state, make_optimizer, steps, batch_size):
    """Goes on from the state; returns the loss of each batch before the training on it."""
    parameters = parameters_of(state)
    optimizer = make_optimizer(parameters, state)
    losses = []
    for step in range(steps, 2 * steps):
        batch = slice(step * batch_size, (step + 1) * batch_size)
        ids, dense, late = (torch.from_numpy(flights[k][batch]) for k in ("ids", "dense", "late"))
        ids = ids.long()
        rows = {name: parameters[name].detach()[ids].requires_grad_() for name in TABLES}
        optimizer.zero_grad()
        logits = forward(parameters, rows, dense)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, late.float())
        loss.backward()
        for name in TABLES:
            set_gradient(parameters[name], ids.flatten(), rows[name].grad)
            if make_optimizer is own_adam:  # it takes no sparse gradients
                parameters[name].grad = parameters[name].grad.to_dense()
        optimizer.step()
        losses.append(loss.item())
    return np.float64(losses)


def main(folder, steps, batch_size):
    """Writes result.json and losses.npz."""
    torch.sparse.check_sparse_tensor_invariants.disable()
    state = state_files.read(folder / "state.npz")
    with np.load(str(folder / "stayed.npz")) as file:
        result = differing_bits(state, file)
    (folder / "result.json").write_text(json.dumps(result))
    with np.load(str(folder / "flights.npz")) as file:
        flights = dict(file)
    losses = {
        name: trained(flights, state, make, steps, batch_size)
        for name, make in (
            ("the recorded rule, in PyTorch", recorded_optimizer),
            ("PyTorch's Adagrad", own_adagrad),
            ("PyTorch's Adam", own_adam),
        )
    }
    np.savez(str(folder / "losses.npz"), **losses)
    print(f"PyTorch {torch.__version__}, with TensorFlow: {'tensorflow' in sys.modules}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
