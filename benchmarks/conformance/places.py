"""The environments of `make conformance`: which optimizers run where. Needs the standard library.

An environment is the one of `make leave` with PyTorch or JAX, or of a lane, and a folder with other
packages, which is removed after the run. "old-torch" is an environment of its own.
"""

from typing import Dict, NamedTuple, Tuple

import lanes


class Optimizers(NamedTuple):
    """Optimizers of a package.

    Attributes:
      library: which rows of cases.py they are.
      target: the target of `legacy-opt prove replay`; `{}` is the name of the optimizer.
      package: the distribution, for its version.
    """

    library: str
    target: str
    package: str


class Place(NamedTuple):
    """An environment.

    Attributes:
      base: "torch", "jax", "old-torch", or a lane.
      optimizers: by their name in the table.
      packages: other packages, which pip installs without what they need.
      needs: packages that pip installs with what they need.
      bare: packages whose `__init__.py` is not executed, because it needs too many others.
    """

    base: str
    optimizers: Dict[str, Optimizers]
    packages: Tuple[str, ...] = ()
    needs: Tuple[str, ...] = ()
    bare: Tuple[str, ...] = ()


TORCH = Optimizers("torch", "torch:torch.optim:{}", "torch")
KERAS = Optimizers("keras", "keras:keras.optimizers:{}", "keras")
OPTAX = Optimizers("optax", "optax:optax:{}", "optax")
V1 = Optimizers("v1", "tf:tensorflow:compat.v1.train.{}", lanes.LANES[-1].wheel)
OURS = Optimizers("ours", "tf:legacy_opt:{}", "legacy-opt")
# The oldest PyTorch here is the last one whose wheel needs no other packages with CUDA.
OLD_TORCH_PYTHON = "3.10"
OLD_TORCH = ("torch==1.12.1", "typing_extensions", "numpy<2")

PLACES: Dict[str, Place] = {
    "torch": Place("torch", {"PyTorch": TORCH, "Keras on PyTorch": KERAS}),
    "old-torch": Place("old-torch", {"PyTorch": TORCH}),
    "jax": Place("jax", {"optax": OPTAX, "Keras on JAX": KERAS}),
    "old-jax": Place(
        "jax",
        {"optax": OPTAX, "Keras on JAX": KERAS},
        ("optax==0.2.4", "keras==3.8.0", "chex==0.1.90", "toolz==1.0.0", "etils==1.15.0"),
    ),
    "timm": Place(
        "torch",
        {"timm": Optimizers("timm", "torch:timm.optim.{}", "timm")},
        ("timm==1.0.31",),
        bare=("timm", "timm.optim"),
    ),
    "torch-optimizer": Place(
        "torch",
        {
            "torch-optimizer": Optimizers(
                "torch-optimizer", "torch:torch_optimizer:{}", "torch-optimizer"
            )
        },
        ("torch-optimizer==0.3.0", "pytorch-ranger==0.1.1"),
    ),
    "pytorch-optimizer": Place(
        "torch",
        {
            "pytorch-optimizer": Optimizers(
                "pytorch-optimizer", "torch:pytorch_optimizer:{}", "pytorch-optimizer"
            )
        },
        ("pytorch-optimizer==4.1.0",),
    ),
    "transformers": Place(
        "torch",
        {
            "transformers": Optimizers(
                "transformers", "torch:transformers.optimization:{}", "transformers"
            )
        },
        needs=("transformers==5.24.0",),
    ),
    "2.15": Place(
        "2.15",
        {
            "tf.compat.v1": V1,
            "Keras in TensorFlow": Optimizers("keras", "tf:keras.optimizers:{}", "keras"),
            "Keras' legacy": Optimizers("keras", "tf:keras.optimizers.legacy:{}", "keras"),
            "legacy-opt": OURS,
        },
    ),
    "2.21": Place(
        "2.21",
        {
            "tf.compat.v1": V1,
            "Keras in TensorFlow": Optimizers("keras", "tf:keras.optimizers:{}", "keras"),
            "tf-keras": Optimizers("keras", "tf:tf_keras.optimizers:{}", "tf-keras"),
            "tf-keras' legacy": Optimizers("keras", "tf:tf_keras.optimizers.legacy:{}", "tf-keras"),
            "legacy-opt": OURS,
        },
    ),
    "addons": Place(
        "2.15",
        {"Addons": Optimizers("addons", "tf:tensorflow_addons:optimizers.{}", "tensorflow-addons")},
        lanes.ADDONS,
    ),
}
