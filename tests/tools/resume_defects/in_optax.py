"""Resumes in JAX with optax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from tests.tools.resume_defects import STEPS, Case


def parameters(seed):
    keys = jax.random.split(jax.random.PRNGKey(seed), 4)
    return {
        "dense": {"kernel": jax.random.normal(keys[0], (8, 8)), "bias": jnp.ones(8)},
        "out": {"kernel": jax.random.normal(keys[1], (8, 8)), "bias": jnp.ones(8)},
    }


def loss(params, x):
    hidden = jnp.tanh(x @ params["dense"]["kernel"] + params["dense"]["bias"])
    return jnp.mean((hidden @ params["out"]["kernel"] + params["out"]["bias"] - 1) ** 2)


def trained(transformation, seed, steps=STEPS):
    params = parameters(seed)
    state = transformation.init(params)
    random = np.random.RandomState(seed)
    for _ in range(steps):
        grads = jax.grad(loss)(params, random.randn(16, 8).astype("float32"))
        updates, state = transformation.update(grads, state, params)
        params = optax.apply_updates(params, updates)
    return {"params": params, "opt_state": state}


def defects(folder, seed):
    del folder
    seed %= 2**31
    adam = optax.inject_hyperparams(optax.adam)(optax.exponential_decay(0.01, 10, 0.5))
    saved = trained(adam, seed)
    state, fresh = saved["opt_state"], adam.init(saved["params"])

    def case(name, opt_state, variable, slot, cause):
        after = {"params": saved["params"], "opt_state": opt_state}
        return Case(name, saved, after, variable, slot, cause)

    def with_moments(**values):
        first, *others = state.inner_state
        return state._replace(inner_state=(first._replace(**values), *others))

    first = state.inner_state[0]
    half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), first.mu)
    yield case("state made again", fresh, "dense/bias", "mu", "lost")
    yield case("moments of bfloat16", with_moments(mu=half), "dense/bias", "mu", "cast")
    leaves = with_moments(mu=first.nu, nu=first.mu)
    yield case("leaves in another order", leaves, "dense/bias", "mu", "moved")
    count = with_moments(count=jnp.zeros_like(first.count))
    yield case("count reset", count, "", "inner_state[0].count", "step")
    rate = state._replace(hyperparams=dict(state.hyperparams, learning_rate=jnp.float32(0.01)))
    yield case("rate of the program wins", rate, "", "learning_rate", "changed")


OPTIMIZERS = [
    *(
        functools.partial(getattr(optax, name), 0.01)
        for name in (
            "adam",
            "adamw",
            "sgd",
            "adagrad",
            "lion",
            "radam",
            "adabelief",
            "yogi",
            "rmsprop",
            "lamb",
            "adadelta",
            "adafactor",
            "novograd",
            "amsgrad",
            "nadam",
        )
    ),
    functools.partial(optax.sgd, 0.01, momentum=0.9, nesterov=True),
    lambda: optax.chain(
        optax.clip_by_global_norm(1.0), optax.adam(optax.cosine_decay_schedule(0.01, 50))
    ),
    lambda: optax.inject_hyperparams(optax.adamw)(
        learning_rate=optax.linear_schedule(0.1, 0.0, 50)
    ),
    lambda: optax.MultiSteps(optax.adam(0.01), 2).gradient_transformation(),
    lambda: optax.chain(optax.adam(0.01), optax.ema(0.9)),
]


def sound(folder, random, i):
    """Returns a sound resume: a state, and one made of the same leaves."""
    make = OPTIMIZERS[i % len(OPTIMIZERS)]
    saved = trained(make(), random.randrange(2**31), random.randrange(0, 12))
    leaves = [np.array(leaf) for leaf in jax.tree.leaves(saved)]
    params = parameters(1)
    tree = jax.tree.structure({"params": params, "opt_state": make().init(params)})
    return str(make), saved, jax.tree.unflatten(tree, leaves)
