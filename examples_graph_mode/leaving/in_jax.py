"""The training in JAX.

python -m leaving.in_jax FOLDER STEPS BATCH_SIZE
"""

import json
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from legacy_opt.recorded import jax_state, state_files
from legacy_opt.recorded.jax import JaxOptimizer, Rows

from . import KEPT

TABLES = ("embeddings", "wide")  # their gradients are sparse


def start(saved):
    """Returns the optimizer, and the parameters and the state of the Session."""
    optimizer = JaxOptimizer(saved.record)
    params = {name: jnp.asarray(saved.variables[name]) for name in saved.slots}
    state, params = jax_state.load_state(saved.record, saved, optimizer.init(params), params)
    return optimizer, params, state


def rows_of(ids, values, shape):
    """Returns the gradient of a table."""
    return Rows(ids, values.reshape(-1, *shape[1:]))


def differing_bits(saved, stayed):
    """Trains on the gradients of the Session; returns how many bits of the weights differ."""
    optimizer, params, state = start(saved)
    step = jax.jit(optimizer.step, donate_argnums=(0, 1))
    for number in range(KEPT):
        gradients = {}
        for name, value in params.items():
            gradient = stayed[f"gradient/{number}/0/{name}"]
            if name in TABLES:
                rows = stayed[f"gradient/{number}/1/{name}"]
                gradient = rows_of(gradient, rows, value.shape)
            gradients[name] = gradient
        params, state = step(params, state, gradients)
    bits = numbers = 0
    for name, value in params.items():
        found = np.asarray(value).reshape(-1).view(np.uint32)
        expected = stayed[f"value/{name}"].reshape(-1).view(np.uint32)
        bits += int(np.unpackbits((found ^ expected).view(np.uint8)).sum())
        numbers += found.size
    return {"bits": bits, "numbers": numbers}


def loss_of(weights, rows, dense, late):
    """Returns the log-loss of flights/model.py; `rows` is a dict with the rows of the tables."""
    embedded = rows["embeddings"].reshape(len(dense), -1)
    hidden = jnp.concatenate([embedded, dense], 1) @ weights["hidden_weights"]
    hidden = jax.nn.relu(hidden + weights["hidden_bias"])
    logits = weights["bias"] + rows["wide"].sum(1) + (dense @ weights["wide_dense"])[:, 0]
    logits = logits + (hidden @ weights["output_weights"])[:, 0]
    return jnp.mean(jax.nn.softplus(logits) - late * logits)


def trained(flights, saved, steps, batch_size):
    """Goes on from the state; returns the loss of each batch before the training on it."""
    optimizer, params, state = start(saved)

    def step(params, state, ids, dense, late):
        weights = {name: value for name, value in params.items() if name not in TABLES}
        rows = {name: params[name][ids] for name in TABLES}
        values = jax.value_and_grad(loss_of, argnums=(0, 1))(weights, rows, dense, late)
        loss, (gradients, of_rows) = values
        for name in TABLES:
            gradients[name] = rows_of(ids.reshape(-1), of_rows[name], params[name].shape)
        return (loss, *optimizer.step(params, state, gradients))

    step = jax.jit(step, donate_argnums=(0, 1))
    losses = []
    for number in range(steps, 2 * steps):
        batch = slice(number * batch_size, (number + 1) * batch_size)
        ids, dense, late = (flights[key][batch] for key in ("ids", "dense", "late"))
        loss, params, state = step(params, state, ids, dense, late.astype("float32"))
        losses.append(float(loss))
    return np.float64(losses)


def main(folder, steps, batch_size):
    """Writes result_in_jax.json and losses_in_jax.npz."""
    jax.config.update("jax_enable_x64", True)  # AdagradDecay counts in int64
    saved = state_files.read(folder / "state.npz")
    with np.load(str(folder / "stayed.npz")) as file:
        result = differing_bits(saved, file)
    (folder / "result_in_jax.json").write_text(json.dumps(result))
    with np.load(str(folder / "flights.npz")) as file:
        losses = trained(dict(file), saved, steps, batch_size)
    np.savez(str(folder / "losses_in_jax.npz"), **{"the recorded rule, in JAX": losses})
    print(f"JAX {jax.__version__}, with TensorFlow: {'tensorflow' in sys.modules}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
