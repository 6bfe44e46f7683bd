"""What `make conformance` compares: families of rules, and the optimizers that may compute them.

Rules are those of the catalogue or of rules.py. Each optimizer of a family is replayed with a proof
of each rule, so that the table shows which formula an optimizer has, instead of only that it has
another one.
"""

from typing import Dict, List, NamedTuple, Tuple


class Rule(NamedTuple):
    """A rule of a family.

    Attributes:
      name: its name in the catalogue or in rules.py.
      about: a sentence.
      values: values of hyperparameters instead of drawn ones.
    """

    name: str
    about: str
    values: Dict[str, float] = {}


class Case(NamedTuple):
    """An optimizer.

    Attributes:
      library: whose it is; see places.py.
      name: the class or function.
      mapping: other sources of arguments, as after `--map`.
      note: a sentence, for the case that it has none of the rules.
    """

    library: str
    name: str
    mapping: str = ""
    note: str = ""


class Family(NamedTuple):
    """Rules, by their columns in the table, and optimizers."""

    rules: Dict[str, Rule]
    cases: Tuple[Case, ...]


def cases(library: str, *rows: str) -> List[Case]:
    """Returns cases from texts: name, arguments, and after `;` the note."""
    parts = [row.partition(";") for row in rows]
    calls = [(text.partition(" "), note.strip()) for text, _, note in parts]
    return [Case(library, name, mapping, note) for (name, _, mapping), note in calls]


# They compute parts in float32 also if variables are float64, so float64 is no second opinion.
IN_FLOAT32 = {("keras", "Adafactor"), ("torch-optimizer", "RAdam")}
CLIP = "clip_threshold=clipping_threshold"
PLAIN = {"total_steps": 0.0, "weight_decay": 0.0}  # without warmup and decay
FAMILIES = {
    "Momentum": Family(
        {
            "rate outside": Rule(
                "MomentumOptimizer",
                "the velocity sums gradients, and the update multiplies it by the rate. "
                "TensorFlow 1.",
            ),
            "rate inside": Rule(
                "momentum, rate inside",
                "the velocity sums gradients that are multiplied by the rate. The same, until the "
                "rate changes. Sutskever et al. 2013, formula 1.",
            ),
            "dampened": Rule(
                "momentum, dampened",
                "all gradients but the first one are multiplied by 1 - dampening.",
                {"dampening": 0.5},
            ),
        },
        (
            *cases("v1", "MomentumOptimizer"),
            *cases("torch", "SGD dampening=0.0", "SGD dampening=0.5"),
            *cases("optax", "sgd"),
            *cases("keras", "SGD"),
        ),
    ),
    "Nesterov's momentum": Family(
        {
            "rate outside": Rule("Nesterov, rate outside", "as above. TensorFlow 1."),
            "rate inside": Rule("Nesterov, rate inside", "as above."),
        },
        (
            *cases("v1", "MomentumOptimizer use_nesterov=True"),
            *cases("torch", "SGD nesterov=True"),
            *cases("optax", "sgd nesterov=True"),
            *cases("keras", "SGD nesterov=True"),
        ),
    ),
    "SGD with decoupled decay": Family(
        {
            "times the rate": Rule(
                "SGDW", "the variable decays by rate x decay x variable; as most libraries do."
            ),
            "not times the rate": Rule(
                "MomentumWOptimizer",
                "the variable decays by decay x variable, before the update. tf.contrib.",
            ),
            "a constant": Rule(
                "SGDW, a constant decay",
                "rate x decay is subtracted from all elements. Algorithm 1 of Loshchilov and "
                "Hutter (2019) multiplies the variable (torch-optimizer #433, #454).",
            ),
        },
        (
            *cases("torch-optimizer", "SGDW"),
            *cases("pytorch-optimizer", "SGDW"),
            *cases("timm", "sgdw:SGDW"),
            *cases("addons", "SGDW; the decay does not contain the rate, but the velocity does."),
            *cases("ours", "MomentumWOptimizer"),
        ),
    ),
    "Adagrad": Family(
        {
            "TensorFlow 1": Rule("Adagrad, no epsilon", "the root of the sum has no epsilon."),
            "epsilon inside": Rule("Adagrad, epsilon inside", "the root is of the sum + epsilon."),
            "epsilon outside": Rule(
                "Adagrad, epsilon outside", "epsilon is added to the root of the sum."
            ),
            "from 0, by default": Rule(
                "Adagrad, from 0",
                "the same, and sums start at 0 if no start is given; elsewhere they start at 0.1 "
                "(TorchEasyRec #669).",
            ),
        },
        (
            *cases("v1", "AdagradOptimizer"),
            *cases("torch", "Adagrad", "Adagrad eps=0.0"),
            *cases("optax", "adagrad", "adagrad eps=0.0"),
            *cases(
                "keras", "Adagrad", "Adagrad epsilon=0.0; an epsilon of 0 means the default, 1e-7."
            ),
        ),
    ),
    "Adadelta": Family(
        {"TensorFlow 1": Rule("AdadeltaOptimizer", "Zeiler 2012, Algorithm 1, times a rate.")},
        (
            *cases("v1", "AdadeltaOptimizer"),
            *cases("torch", "Adadelta"),
            *cases("optax", "adadelta"),
            *cases("keras", "Adadelta"),
        ),
    ),
    "RMSProp": Family(
        {
            "TensorFlow 1": Rule(
                "RMSPropOptimizer",
                "mean squares start at 1, and epsilon is inside of the root; with momentum.",
            ),
            "epsilon inside": Rule(
                "RMSProp, epsilon inside",
                "mean squares start at 0, and epsilon is inside of the root.",
            ),
            "epsilon outside": Rule(
                "RMSProp, epsilon outside",
                "mean squares start at 0, and epsilon is added to the root.",
            ),
        },
        (
            *cases("v1", "RMSPropOptimizer"),
            *cases("torch", "RMSprop"),
            *cases("optax", "rmsprop", "rmsprop eps_in_sqrt=False", "rmsprop initial_scale=1.0"),
            *cases("keras", "RMSprop"),
            *cases("timm", "rmsprop_tf:RMSpropTF alpha=decay"),
        ),
    ),
    "FTRL": Family(
        {
            "TensorFlow 1": Rule(
                "FtrlOptimizer",
                "sums start at 0.1; l2 is counted twice, as the loss l2 x square(variable) has it.",
                {"learning_rate_power": -0.5},
            ),
            "l2 once": Rule(
                "FTRL, l2 once",
                "sums start at 0; l2 is counted once. McMahan et al. 2013, Algorithm 1, with a "
                "beta of 0 (torchrec #4710).",
            ),
        },
        (
            *cases("v1", "FtrlOptimizer"),
            *cases("keras", "Ftrl"),
            *cases("pytorch-optimizer", "FTRL lambda_1=l1 lambda_2=l2"),
        ),
    ),
    "Adam": Family(
        {
            "TensorFlow 1": Rule(
                "AdamOptimizer",
                "epsilon is added to the root before its bias is corrected: “epsilon hat” at the "
                "end of section 2 of Kingma and Ba (2015).",
            ),
            "Algorithm 1": Rule(
                "Adam, Algorithm 1",
                "epsilon is added to the root of the corrected moment; the same paper.",
            ),
        },
        (
            *cases("v1", "AdamOptimizer"),
            *cases("torch", "Adam"),
            *cases("optax", "adam"),
            *cases("keras", "Adam"),
        ),
    ),
    "AMSGrad": Family(
        {
            "maximum first": Rule(
                "AMSGrad",
                "the maximum of second moments is taken, and then corrected. Algorithm 2 of Reddi "
                "et al. (2018) takes this maximum and corrects nothing.",
            ),
            "epsilon hat": Rule(
                "AMSGrad, epsilon hat", "the same, with epsilon as in TensorFlow's Adam."
            ),
            "correction first": Rule(
                "AMSGrad, corrected first",
                "the maximum is of corrected moments, so the first, largest corrections stay "
                "(optax #1389).",
            ),
        },
        (
            *cases("torch", "Adam amsgrad=True"),
            *cases("optax", "amsgrad"),
            *cases("keras", "Adam amsgrad=True"),
        ),
    ),
    "AdamW": Family(
        {
            "Algorithm 1": Rule(
                "AdamW, Algorithm 1",
                "the variable decays by rate x decay x variable; epsilon as in Adam's Algorithm 1.",
            ),
            "epsilon hat": Rule(
                "AdamW, epsilon hat", "the same, with epsilon as in TensorFlow's Adam."
            ),
            "tf.contrib": Rule(
                "AdamWOptimizer",
                "the variable decays by decay x variable, before the update: the rate does not "
                "change it. A schedule does in Algorithm 2 of Loshchilov and Hutter (2019).",
            ),
        },
        (
            *cases("ours", "AdamWOptimizer"),
            *cases("addons", "AdamW"),
            *cases("torch", "AdamW"),
            *cases("optax", "adamw"),
            *cases("keras", "AdamW"),
            *cases("timm", "adamw:AdamWLegacy"),
        ),
    ),
    "AdaMax": Family(
        {
            "tf.contrib": Rule(
                "AdaMaxOptimizer", "epsilon is added to the maximum, when the update divides by it."
            ),
            "epsilon inside": Rule(
                "AdaMax, epsilon inside", "epsilon is added to the gradient's size."
            ),
        },
        (
            *cases("ours", "AdaMaxOptimizer"),
            *cases("torch", "Adamax"),
            *cases("optax", "adamax"),
            *cases("keras", "Adamax"),
        ),
    ),
    "AdaBelief": Family(
        {
            "the paper's": Rule(
                "AdaBelief",
                "epsilon is added to the second moment in each step, and to its root. Zhuang et "
                "al. 2020, Algorithm 2.",
            ),
        },
        (
            *cases("ours", "AdaBeliefOptimizer rectify=False"),
            *cases("addons", "AdaBelief rectify=False"),
            *cases("optax", "adabelief eps_root=epsilon"),
            *cases("torch-optimizer", "AdaBelief"),
            *cases("timm", "adabelief:AdaBelief rectify=False"),
            *cases("pytorch-optimizer", "AdaBelief"),
        ),
    ),
    "LAMB": Family(
        {
            "the paper's": Rule(
                "LAMB",
                "moments are corrected. You et al. 2020, Algorithm 2, where phi is the identity.",
            ),
            "decay outside": Rule(
                "LAMB, decay outside",
                "the variable decays before the update, outside of the ratio of norms.",
            ),
            "uncorrected": Rule(
                "LAMB, uncorrected",
                "moments are not corrected, and the norm of a variable counts as at most 10 "
                "(torch-optimizer #226, #443).",
            ),
        },
        (
            *cases("ours", "LAMBOptimizer weight_decay_rate=weight_decay"),
            *cases("addons", "LAMB"),
            *cases("optax", "lamb"),
            *cases("keras", "Lamb"),
            *cases(
                "torch-optimizer",
                "Lamb",
                "Lamb debias=True clamp_value=1e9; "
                "the rate is corrected, and not the moments that give the ratio of norms.",
            ),
            *cases(
                "timm",
                "lamb:Lamb; by default, gradients are clipped by their global norm of 1.",
                "lamb:Lamb max_grad_norm=None",
            ),
            *cases(
                "pytorch-optimizer",
                "Lamb; moments are not corrected, and the decay is outside of the ratio.",
            ),
        ),
    ),
    "Lion": Family(
        {"the paper's": Rule("LionOptimizer", "Chen et al. 2023, Algorithm 2.")},
        (
            *cases("ours", "LionOptimizer"),
            *cases("optax", "lion"),
            *cases("keras", "Lion"),
            *cases("timm", "lion:Lion"),
            *cases("pytorch-optimizer", "Lion"),
        ),
    ),
    "Adafactor": Family(
        {
            "tensor2tensor": Rule(
                "AdafactorOptimizer",
                "relative steps and no momentum, as by default. Shazeer and Stern 2018.",
            )
        },
        (
            *cases("ours", "AdafactorOptimizer"),
            *cases("transformers", f"Adafactor eps=epsilon1,epsilon2 beta1=None {CLIP}"),
            *cases("torch-optimizer", f"Adafactor eps2=epsilon1,epsilon2 beta1=None {CLIP}"),
            *cases(
                "keras",
                f"Adafactor learning_rate=0.01 epsilon_1=epsilon1 epsilon_2=epsilon2 {CLIP}; "
                "Keras' Adafactor does not take the tf.Variable of these replays.",
            ),
        ),
    ),
    "Yogi": Family(
        {
            "Addons": Rule("YogiOptimizer", "epsilon is added to the root before the correction."),
            "Algorithm 1's epsilon": Rule(
                "Yogi, Algorithm 1's epsilon",
                "epsilon is added to the corrected root; both moments start at 1e-6.",
            ),
        },
        (
            *cases("ours", "YogiOptimizer"),
            *cases("addons", "Yogi"),
            *cases("optax", "yogi"),
            *cases("torch-optimizer", "Yogi"),
            *cases("pytorch-optimizer", "Yogi"),
        ),
    ),
    "RAdam": Family(
        {
            "Addons": Rule(
                "RectifiedAdamOptimizer", "epsilon is added to the corrected root.", PLAIN
            ),
            "epsilon hat": Rule("RAdam, epsilon hat", "epsilon as in TensorFlow's Adam."),
        },
        (
            *cases("ours", "RectifiedAdamOptimizer"),
            *cases("addons", "RectifiedAdam total_steps=0"),
            *cases("torch", "RAdam"),
            *cases("optax", "radam"),
            *cases("torch-optimizer", "RAdam"),
        ),
    ),
    "Nadam": Family(
        {
            "tf.contrib": Rule(
                "NadamOptimizer",
                "the momentum is constant, and both of its parts have the same correction.",
            )
        },
        (
            *cases("ours", "NadamOptimizer"),
            *cases("torch", "NAdam; the momentum follows Dozat's schedule."),
            *cases(
                "optax", "nadam; the moment and the gradient are corrected by different powers."
            ),
            *cases("keras", "Nadam; the momentum follows Dozat's schedule."),
        ),
    ),
}
