"""The cards of docs/catalogue.md: one for each public optimizer, and for TensorFlow's own.

python -m tests.tools.catalogue_cards          writes the page, and the curves of docs/gallery.md

`CARDS` holds what people write: formulas, examples and sentences. The functions add what is
measured or stands on other pages: slots and their sizes, how exact an optimizer is
(docs/from_to.md), and the time of a step (docs/native.md).
"""

import re
from typing import NamedTuple, Optional

from tests.support.keras.keras_differences import SHAPE
from tests.support.pages import table, text_of, with_part
from tests.support.paths import DOCS
from tests.tools.catalogue_pages import by_number, facts, slot_bytes, written

PAGE, GALLERY = "catalogue.md", "gallery.md"
FAMILIES = {
    "adam_family.md": "The Adam family",
    "weight_decay.md": "Weight decay",
    "layerwise.md": "Learning rates for each layer",
    "signs.md": "Signs",
    "second_moments.md": "Second moments",
    "adagrad_decay.md": "AdagradDecay",
    "wrappers.md": "Wrappers",
}
_UNBRIDGED = "none computes this"
_NO_TORCH = "none computes this; train the [recorded rule](recorded_rules.md)"
_ROWS = "with embeddings, Keras' Adam also changes rows that are not in the batch"
_REPEATED = "Keras 3 squares the gradients of repeated ids before it sums them"
_ADAM_OF_TORCH = "`Adam` counts the steps itself, and adds epsilon after the correction of the bias"
_NO_RECORD = "none; not recorded"
_IN_KERAS = "`to_keras` takes the wrapper ([page](wrappers.md#in-keras))"


class Card(NamedTuple):
    """An optimizer, as people describe it.

    Attributes:
      name: the name in `legacy_opt`.
      when: when to take it; it completes the sentence "Take it".
      formula: the update as LaTeX.
      example: an expression that creates it; it may use `legacy_opt`, `v1`, `step` and `table`.
      differs: how it is meant to differ from its original.
      keras: what Keras' optimizer of this name computes differently.
      torch: what PyTorch's optimizer of this name computes differently.
      family: the page of its family.
      measured: an expression for its slots; None means `example` without "legacy_opt.".
      speed: its name in the table of docs/native.md; None means its name without "Optimizer".
      other_shape: the shape of another matrix whose state is shown.
    """

    name: str
    when: str
    formula: str
    example: str
    differs: str
    keras: str
    torch: str
    family: str
    measured: Optional[str] = None
    speed: Optional[str] = None
    other_shape: Optional[tuple] = None


_ADAM = r"w \leftarrow w - \eta_t \frac{m}{\sqrt{v} + \epsilon}"
_SAME = "nothing"
_OF_ADDONS = (
    "16-bit variables are computed in float32; `epsilon=0` means 0; a `sma_threshold` below 4 "
    "means 4"
)
CARDS = (
    Card(
        "LazyAdamOptimizer",
        "for embeddings: a step changes only the rows in the batch",
        _ADAM + r" \quad \text{in the rows of the gradient}",
        "legacy_opt.LazyAdamOptimizer(0.001)",
        _SAME,
        f"`Adam`: the same for dense gradients, up to rounding; {_ROWS}; {_REPEATED}",
        "`Adam`: the same for dense gradients, up to rounding, after some 2,000 steps, if epsilon "
        "is converted, as `legacy-opt export --to torch-own` does; `SparseAdam` for embeddings",
        "adam_family.md",
    ),
    Card(
        "LazyAdamGSOptimizer",
        "for embeddings that many asynchronous workers share",
        _ADAM + r" \quad \text{in the rows of the gradient}",
        "legacy_opt.LazyAdamGSOptimizer(step, 0.001)",
        "an int32 global step that is negative is an error",
        f"`Adam`: {_ROWS}; {_REPEATED}",
        _ADAM_OF_TORCH,
        "adam_family.md",
    ),
    Card(
        "AdamGSOptimizer",
        "for a model that was trained with it",
        _ADAM,
        "legacy_opt.AdamGSOptimizer(step, 0.001)",
        "an int32 global step that is negative is an error",
        f"`Adam`: the same up to rounding, but {_REPEATED}",
        _ADAM_OF_TORCH,
        "adam_family.md",
    ),
    Card(
        "NadamOptimizer",
        "for a model that was trained with it",
        r"w \leftarrow w - \eta_t \frac{\beta_1 m + (1 - \beta_1) g}{\sqrt{v} + \epsilon}",
        "legacy_opt.NadamOptimizer(0.001)",
        _SAME,
        "`Nadam` has a momentum schedule, which this optimizer does not have",
        "`NAdam` has a momentum schedule, which this optimizer does not have",
        "adam_family.md",
    ),
    Card(
        "AdaMaxOptimizer",
        "if single gradients are far larger than the others",
        r"v \leftarrow \max(\beta_2 v, |g|), \quad "
        r"w \leftarrow w - \frac{\eta}{1 - \beta_1^t} \frac{m}{v + \epsilon}",
        "legacy_opt.AdaMaxOptimizer(0.001)",
        _SAME,
        "`Adamax`: Keras 2 computes the same up to rounding. Keras 3 also changes rows that are "
        "not in the batch, and takes the largest gradient of a repeated id",
        "`Adamax` adds epsilon to the gradient's absolute value, before the maximum",
        "adam_family.md",
    ),
    Card(
        "AdamAsyncOptimizer",
        "for models of DeepRec, and for variables that get gradients at different times",
        _ADAM + r" \quad \text{with a count of steps for each variable}",
        "legacy_opt.AdamAsyncOptimizer(0.001)",
        _SAME,
        f"`Adam`: one count of steps for all variables; {_ROWS}; {_REPEATED}",
        "`Adam` also counts the steps of each parameter, but adds epsilon after the correction of "
        "the bias",
        "adam_family.md",
    ),
    Card(
        "DiffGradOptimizer",
        "if Adam overshoots: steps shrink, to a half at most, where the gradient changes little",
        r"w \leftarrow w - \eta_t \frac{m}{\sqrt{v} + \epsilon} \cdot "
        r"\frac{1}{1 + e^{-|g_{t-1} - g_t|}}",
        "legacy_opt.DiffGradOptimizer(0.001)",
        _SAME,
        _UNBRIDGED,
        _NO_TORCH,
        "adam_family.md",
    ),
    Card(
        "RectifiedAdamOptimizer",
        "for models of TensorFlow Addons, and to train without a warmup of the learning rate",
        r"w \leftarrow w - \eta r_t \frac{\hat{m}}{\sqrt{\hat{v}} + \epsilon}",
        "legacy_opt.RectifiedAdamOptimizer(0.001)",
        _OF_ADDONS,
        _UNBRIDGED,
        "`RAdam`: the same for dense gradients, up to rounding, after some 3,000 steps, if epsilon "
        "is converted, as `legacy-opt export --to torch-own` does",
        "adam_family.md",
    ),
    Card(
        "AdaBeliefOptimizer",
        "for models of TensorFlow Addons, and if gradients are alike from step to step",
        r"v \leftarrow \beta_2 v + (1 - \beta_2) (g - m)^2 + \epsilon, \quad "
        r"w \leftarrow w - \eta r_t \frac{\hat{m}}{\sqrt{\hat{v}} + \epsilon}",
        "legacy_opt.AdaBeliefOptimizer(0.001)",
        _OF_ADDONS,
        _UNBRIDGED,
        _NO_TORCH,
        "adam_family.md",
    ),
    Card(
        "NovoGradOptimizer",
        "for models of TensorFlow Addons, and if the state of Adam does not fit into memory",
        r"m \leftarrow \beta_1 m - \eta \left(\frac{g}{\sqrt{v} + \epsilon} + \lambda w\right), "
        r"\quad w \leftarrow w + m \quad \text{with one } v \text{ per variable}",
        "legacy_opt.NovoGradOptimizer(0.001)",
        "16-bit variables are computed in float32; `amsgrad` works with sparse gradients, and has "
        "a scalar slot",
        _UNBRIDGED,
        _NO_TORCH,
        "adam_family.md",
    ),
    Card(
        "YogiOptimizer",
        "for models of TensorFlow Addons, and if Adam's steps grow too fast after rare gradients",
        r"v \leftarrow v + (1 - \beta_2) \, \mathrm{sign}(g^2 - v) \, g^2, \quad " + _ADAM,
        "legacy_opt.YogiOptimizer(0.01)",
        "16-bit variables are computed in float32; with regularization, the new value is rounded "
        "once more",
        _UNBRIDGED,
        _NO_TORCH,
        "adam_family.md",
    ),
    Card(
        "AdamWOptimizer",
        "for models that were trained with `tf.contrib.opt.AdamWOptimizer`",
        r"w \leftarrow w - \lambda w, \quad " + _ADAM,
        "legacy_opt.AdamWOptimizer(0.0001, learning_rate=0.001)",
        "`minimize` obeys `decay_var_list`; an empty list is an error; the decay always precedes "
        "the update",
        "`AdamW` multiplies the decay by the learning rate, and decays all rows of a table",
        "`AdamW` multiplies the decay by the learning rate; with `weight_decay / learning_rate` "
        "the same for dense gradients and a constant rate, up to rounding",
        "weight_decay.md",
    ),
    Card(
        "MomentumWOptimizer",
        "for models that were trained with `tf.contrib.opt.MomentumWOptimizer`",
        r"w \leftarrow w - \lambda w, \quad a \leftarrow \mu a + g, \quad "
        r"w \leftarrow w - \eta a",
        "legacy_opt.MomentumWOptimizer(0.0001, 0.1, 0.9)",
        "as AdamWOptimizer",
        "`SGD(weight_decay=)` multiplies the decay by the learning rate, and decays and moves all "
        "rows of a table",
        "`SGD(weight_decay=)` adds the decay to the gradient",
        "weight_decay.md",
    ),
    Card(
        "AdamWeightDecayOptimizer",
        "for BERT and ALBERT, and to fine-tune their checkpoints",
        r"w \leftarrow w - \eta \left(\frac{m}{\sqrt{v} + \epsilon} + \lambda w\right)",
        'legacy_opt.AdamWeightDecayOptimizer(1e-4, 0.01, exclude_from_weight_decay=["bias"])',
        "`apply_gradients` advances the global step: delete the line of the script that does; all "
        "float dtypes",
        "`AdamW` corrects the bias of the moments, and its first steps are shorter",
        "`AdamW` corrects the bias of the moments, and its first steps are shorter",
        "weight_decay.md",
        speed="AdamWeightDecay (BERT)",
    ),
    Card(
        "extend_with_decoupled_weight_decay",
        "to add decoupled weight decay to any other v1 optimizer",
        r"w \leftarrow w - \lambda w, \quad \text{then the step of the optimizer}",
        "legacy_opt.extend_with_decoupled_weight_decay(legacy_opt.LazyAdamOptimizer)(0.0001)",
        "as AdamWOptimizer; to override `_decay_weights_op` is an error",
        "`weight_decay=` multiplies the decay by the learning rate, and decays all rows of a table",
        "`AdamW` multiplies the decay by the learning rate",
        "weight_decay.md",
        measured="extend_with_decoupled_weight_decay(LazyAdamOptimizer)(0.0001)",
    ),
    Card(
        "LARSOptimizer",
        "for convolutional networks with batches of thousands of examples",
        r"a \leftarrow \mu a + \eta \frac{\kappa |w|}{|g| + \lambda |w| + \epsilon} "
        r"(g + \lambda w), \quad w \leftarrow w - a",
        'legacy_opt.LARSOptimizer(0.1, skip_list=["bias"])',
        "a callable as learning rate works for dense gradients",
        _UNBRIDGED,
        _NO_TORCH,
        "layerwise.md",
    ),
    Card(
        "LAMBOptimizer",
        "for BERT and other transformers with large batches",
        r"u = \frac{\hat{m}}{\sqrt{\hat{v}} + \epsilon} + \lambda w, \quad "
        r"w \leftarrow w - \eta \frac{|w|}{|u|} u",
        "legacy_opt.LAMBOptimizer(0.001, weight_decay_rate=0.01)",
        "corrects the bias unless `bias_correction=False`; `apply_gradients` advances the global "
        "step: delete the line of the script that does; all float dtypes",
        f"`Lamb` (Keras 3): the same without weight decay, up to rounding; {_REPEATED}; weight "
        "decay is not part of the norm",
        _NO_TORCH,
        "layerwise.md",
    ),
    Card(
        "ConditionalGradientOptimizer",
        "if the norm of each variable must stay below a bound",
        r"w \leftarrow \eta w - (1 - \eta) \lambda \frac{g}{|g| + \epsilon}",
        "legacy_opt.ConditionalGradientOptimizer(0.99, lambda_=10.0)",
        "has no slot: the original does not use its slot `conditional_gradient`",
        _UNBRIDGED,
        _NO_TORCH,
        "layerwise.md",
    ),
    Card(
        "AddSignOptimizer",
        "for a model that was trained with it, or if Momentum works and two slots are too much",
        r"w \leftarrow w - \eta (\alpha + d \cdot \mathrm{sign}(g) \mathrm{sign}(m)) g",
        "legacy_opt.AddSignOptimizer(0.01)",
        "sparse gradients of resource variables work",
        _UNBRIDGED,
        _NO_TORCH,
        "signs.md",
    ),
    Card(
        "PowerSignOptimizer",
        "for a model that was trained with it, or if Momentum works and two slots are too much",
        r"w \leftarrow w - \eta b^{d \cdot \mathrm{sign}(g) \mathrm{sign}(m)} g",
        "legacy_opt.PowerSignOptimizer(0.01)",
        "sparse gradients of resource variables work",
        _UNBRIDGED,
        _NO_TORCH,
        "signs.md",
    ),
    Card(
        "LionOptimizer",
        "for large models and batches, with half of the state of Adam",
        r"w \leftarrow w - \eta (\mathrm{sign}(\beta_1 m + (1 - \beta_1) g) + \lambda w)",
        "legacy_opt.LionOptimizer(0.0003)",
        _SAME,
        "`Lion`: the same bits for dense gradients without weight decay; with embeddings, it also "
        "moves rows that are not in the batch",
        _NO_TORCH,
        "signs.md",
    ),
    Card(
        "AdafactorOptimizer",
        "if the state of Adam does not fit into memory",
        r"u = \frac{g}{\sqrt{r c^T / \mathrm{mean}(r)}}, \quad w \leftarrow w - \rho_t "
        r"\max(\mathrm{rms}(w), \epsilon_2) \frac{u}{\max(1, \mathrm{rms}(u) / d)}",
        "legacy_opt.AdafactorOptimizer()",
        "nothing is added to the rates to hinder XLA; the decay rate stays below 1; "
        "`simulated_quantize_bits` and `parameter_encoding` are errors",
        "`Adafactor(0.01)`: the same with the defaults, up to rounding; no momentum; it keeps a "
        f"second moment of the variable's shape, too; {_REPEATED}",
        "`Adafactor` bounds the squares from below by epsilon instead of adding it; no momentum",
        "second_moments.md",
    ),
    Card(
        "RegAdagradOptimizer",
        "if the gradient of a regularization term should not slow down Adagrad",
        r"a \leftarrow a + g^2, \quad w \leftarrow w - \frac{\eta g}{\sqrt{a}}",
        "legacy_opt.RegAdagradOptimizer(0.1)",
        _SAME,
        f"`Adagrad(epsilon=0.0)`: the same outside `avoid_updating_slots()`, up to rounding; "
        f"{_REPEATED}",
        "`Adagrad` has no `avoid_updating_slots()`, adds epsilon, and starts at 0 by default",
        "second_moments.md",
    ),
    Card(
        "ShampooOptimizer",
        "for dense models with matrices of some hundreds of rows: fewer steps, which cost more",
        r"w \leftarrow w - \eta \left(\frac{L}{a} + \epsilon I\right)^{-\alpha/2} g "
        r"\left(\frac{R}{b} + \epsilon I\right)^{-\alpha/2}",
        "legacy_opt.ShampooOptimizer(step, learning_rate=0.1)",
        "float16, bfloat16 and float64 variables, scalars and a function as `svd_interval` work; "
        "`mat_gbar_decay=0` keeps the matrices between their updates",
        _UNBRIDGED,
        _NO_RECORD,
        "second_moments.md",
        other_shape=(700, 700),
    ),
    Card(
        "COCOBOptimizer",
        "if there is no time to search a learning rate: it has none",
        r"w \leftarrow w_0 - \frac{\sum g}{\ell \max(\sum |g| + \ell, \alpha \ell)} (r + \ell)",
        "legacy_opt.COCOBOptimizer()",
        "takes sparse gradients; refuses float16 variables, in which the original computes NaN",
        _UNBRIDGED,
        _NO_TORCH,
        "second_moments.md",
    ),
    Card(
        "AdagradDecayOptimizer",
        "for checkpoints of DeepRec's first layout; AdagradDecayOptimizerV2 needs less memory",
        r"a \leftarrow \max(\gamma a, a_0) \text{ once a period}, \quad "
        r"a \leftarrow a + g^2, \quad w \leftarrow w - \frac{\eta g}{\sqrt{a}}",
        "legacy_opt.AdagradDecayOptimizer(0.1, step, accumulator_decay_step=1000)",
        "an int32 global step that is negative is an error",
        "`Adagrad` has no decay",
        "`Adagrad` has no decay of the accumulator",
        "adagrad_decay.md",
    ),
    Card(
        "AdagradDecayOptimizerV2",
        "for long streams of data, on which Adagrad stops learning",
        r"\text{the formula of AdagradDecayOptimizer}",
        "legacy_opt.AdagradDecayOptimizerV2(0.1, step, accumulator_decay_step=1000)",
        "an int32 global step that is negative is an error",
        "`Adagrad` has no decay",
        "`Adagrad` has no decay of the accumulator",
        "adagrad_decay.md",
        speed="AdagradDecayV2",
    ),
    Card(
        "MultiOptimizer",
        "if parts of a model need different optimizers",
        r"w_i \leftarrow \mathrm{step}_i(w_i)",
        "legacy_opt.MultiOptimizer(\n"
        '    [(v1.train.FtrlOptimizer(0.1), "table")], default=v1.train.AdamOptimizer(0.001)\n'
        ")",
        "one backward pass; routes go by variables, not by layers as in TensorFlow Addons",
        _IN_KERAS,
        "parameter groups share one class of optimizer",
        "wrappers.md",
        measured='MultiOptimizer([(GradientDescentOptimizer(0.1), "w")])',
    ),
    Card(
        "GradientAccumulationOptimizer",
        "if the batch that trains well does not fit into memory",
        r"g = \frac{1}{n} \sum_{i=1}^{n} g_i",
        "legacy_opt.GradientAccumulationOptimizer(v1.train.AdamOptimizer(0.001), steps=4)",
        "–",
        "`gradient_accumulation_steps` (Keras 3) makes sparse gradients dense; " + _IN_KERAS,
        "gradients add up in `.grad` until `zero_grad()`: divide the loss by the number of batches",
        "wrappers.md",
        measured="GradientAccumulationOptimizer(GradientDescentOptimizer(0.1), 4)",
    ),
    Card(
        "MovingAverageOptimizer",
        "if evaluation and export should get averages of the weights",
        r"\bar{w} \leftarrow d \bar{w} + (1 - d) w",
        "legacy_opt.MovingAverageOptimizer(v1.train.AdamOptimizer(0.001), 0.999)",
        "`sequential_update=False` averages the values before the step; `swapping_saver` swaps the "
        "variables of all calls, also under a strategy",
        "`use_ema=True`; " + _IN_KERAS,
        "`torch.optim.swa_utils.AveragedModel`",
        "wrappers.md",
        measured="MovingAverageOptimizer(GradientDescentOptimizer(0.1))",
    ),
    Card(
        "SWAOptimizer",
        "if a training with a high or cyclic learning rate should end in the mean of its weights",
        r"\bar{w} \leftarrow \frac{n \bar{w} + w}{n + 1}",
        "legacy_opt.SWAOptimizer(\n"
        "    v1.train.MomentumOptimizer(0.05, 0.9), start_averaging=1000, average_period=100\n"
        ")",
        "before the first snapshot, averages equal the variables, and are not zero",
        _IN_KERAS,
        "`torch.optim.swa_utils.AveragedModel`",
        "wrappers.md",
        measured="SWAOptimizer(GradientDescentOptimizer(0.1))",
    ),
    Card(
        "LookaheadOptimizer",
        "for a steadier training by any optimizer; around RectifiedAdam it is known as Ranger",
        r"s \leftarrow s + \alpha (w - s), \quad w \leftarrow s",
        "legacy_opt.LookaheadOptimizer(v1.train.AdamOptimizer(0.001), sync_period=6)",
        "–",
        _IN_KERAS,
        "–",
        "wrappers.md",
        measured="LookaheadOptimizer(GradientDescentOptimizer(0.1))",
    ),
    Card(
        "VariableClippingOptimizer",
        "if rows of an embedding should have a bounded norm",
        r"w \leftarrow w \cdot \min(1, \frac{c}{|w|})",
        "legacy_opt.VariableClippingOptimizer(\n"
        "    v1.train.AdagradOptimizer(0.1), [(table, [1])], max_norm=1.0\n"
        ")",
        "clips a row once if its id is repeated; clips partitioned variables; reads rows after "
        "their update",
        "`constraint=` of a layer clips all rows; " + _IN_KERAS,
        "`nn.Embedding(max_norm=)` clips rows when they are looked up",
        "wrappers.md",
        measured="VariableClippingOptimizer(GradientDescentOptimizer(0.1), [], 1.0)",
    ),
    Card(
        "LossScaleOptimizer",
        "if gradients are computed in float16 and would underflow",
        r"g = \frac{1}{s} \nabla (s \cdot \text{loss}), \text{ no step if } |g| = \infty",
        "legacy_opt.LossScaleOptimizer(\n"
        "    v1.train.AdamOptimizer(0.001), legacy_opt.FixedLossScaleManager(1024.0)\n"
        ")",
        "works in `tf.function`, and if a variable has no gradient",
        "`LossScaleOptimizer` around `to_keras(…)` of the inner optimizer",
        "`torch.amp.GradScaler`",
        "wrappers.md",
        measured="LossScaleOptimizer(GradientDescentOptimizer(0.1), FixedLossScaleManager(64.0))",
    ),
    Card(
        "MultitaskOptimizerWrapper",
        "if batches do not have examples of every task",
        r"\text{no update of a variable whose gradient is 0}",
        "legacy_opt.MultitaskOptimizerWrapper(v1.train.AdamOptimizer(0.001))",
        "leaves the inner optimizer as it was; works around wrappers",
        _IN_KERAS,
        "parameters whose `.grad` is None are skipped, those with a gradient of 0 are not",
        "wrappers.md",
        measured="MultitaskOptimizerWrapper(GradientDescentOptimizer(0.1))",
    ),
    Card(
        "ClipByValueOptimizer",
        "if something else calls `minimize`, and each element of gradients should be clipped",
        r"g \leftarrow \min(\max(g, a), b)",
        "legacy_opt.ClipByValueOptimizer(v1.train.AdamOptimizer(0.001), -1.0, 1.0)",
        "–",
        "`clipvalue=`: rows of a repeated id are clipped before they are summed; " + _IN_KERAS,
        "`nn.utils.clip_grad_value_`",
        "wrappers.md",
        measured="ClipByValueOptimizer(GradientDescentOptimizer(0.1), -1.0, 1.0)",
    ),
    Card(
        "ClipByNormOptimizer",
        "if something else calls `minimize`, and each gradient should be clipped by its norm",
        r"g \leftarrow g \cdot \min(1, \frac{c}{|g|})",
        "legacy_opt.ClipByNormOptimizer(v1.train.AdamOptimizer(0.001), 1.0)",
        "–",
        "`clipnorm=`: rows of a repeated id are clipped before they are summed; " + _IN_KERAS,
        "`nn.utils.clip_grad_norm_` takes the norm of all gradients together",
        "wrappers.md",
        measured="ClipByNormOptimizer(GradientDescentOptimizer(0.1), 1.0)",
    ),
    Card(
        "ClipByGlobalNormOptimizer",
        "if something else calls `minimize`, and gradients should be clipped by their global norm",
        r"g_i \leftarrow g_i \cdot \min(1, \frac{c}{\sqrt{\sum_j |g_j|^2}})",
        "legacy_opt.ClipByGlobalNormOptimizer(v1.train.AdamOptimizer(0.001), 1.0)",
        "–",
        "`global_clipnorm=`: rows of a repeated id are clipped before they are summed; "
        + _IN_KERAS,
        "`nn.utils.clip_grad_norm_` adds 1e-6 to the norm",
        "wrappers.md",
        measured="ClipByGlobalNormOptimizer(GradientDescentOptimizer(0.1), 1.0)",
    ),
)
STOCK = (
    "GradientDescentOptimizer(0.1)",
    "MomentumOptimizer(0.1, 0.9)",
    "AdagradOptimizer(0.1)",
    "AdagradDAOptimizer(0.1, step)",
    "ProximalGradientDescentOptimizer(0.1)",
    "ProximalAdagradOptimizer(0.1)",
    "AdadeltaOptimizer(0.1)",
    "RMSPropOptimizer(0.1)",
    "AdamOptimizer(0.001)",
    "FtrlOptimizer(0.1)",
)
EXACT = {
    "bits": "bit for bit, tested against the original on TensorFlow 1.15",
    "formula": "the same formula, tested against NumPy",
}
_LARGE = (1000, 1000)
_ACCELERATED = re.compile(r"^\| (Adam|Adagrad|Momentum) \| (\d\.\d+) \|", re.M)


# What stands on other pages.


def originals(name):
    """Returns what docs/from_to.md says about the originals of an optimizer, as text."""
    found = {}
    for line in text_of("from_to.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" |")]
        names = re.findall(r"`([^`]+)`", cells[1]) if len(cells) > 2 else []
        if f"legacy_opt.{name}" in names and all(each.startswith("legacy_opt.") for each in names):
            found.setdefault(EXACT.get(cells[2], cells[2]), []).append(cells[0])
    return "<br>".join(f"{', '.join(names)}: {exact}" for exact, names in found.items()) or "–"


def speed(name):
    """Returns the times of a step with 10 million floats, composed and native, as text."""
    rows = {}
    for line in text_of("native.md").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if "10 M, 2.21" in cells:
            column = cells.index("10 M, 2.21")
        elif re.fullmatch(r"\d[.\d]* \(\d[.\d]*\)", "".join(cells[1:2])):
            rows[cells[0]] = cells[column]
    if name not in rows:
        return "–"
    native, composed = re.findall(r"[\d.]+", rows[name])
    return f"{composed}; with a native kernel {native}"


def accelerated():
    """Returns a dict from TensorFlow's optimizers to the time of a step with a native kernel."""
    _, _, rest = text_of("native.md").partition("own optimizers, accelerated, as a ratio")
    return dict(_ACCELERATED.findall(rest.partition("With `enable")[0]))


# The parts of the page.


def slots_of(expression):
    """Returns an optimizer's slots of a variable `w`, and what all variables share, as text."""
    found = facts(expression, {"w": SHAPE})
    kept = sorted(found.slots["w"].items(), key=lambda item: by_number(item[1][0]))
    names = [f"`{slot}`{_shape(shape)} (`{name}`)" for slot, (name, shape, _) in kept]
    shared = [f"`{name}`" for name in found.shared]
    text = ", ".join(names) or "none"
    return f"{text}; shared by all variables: {', '.join(shared)}" if shared else text


def _shape(shape):
    rows, columns = SHAPE
    names = {rows: "rows", columns: "columns"}
    if shape == SHAPE:
        return ""
    return f" [{', '.join(names.get(length, str(length)) for length in shape)}]"


def state_of(expression, shape=_LARGE):
    """Returns the bytes of state for each element of a float32 matrix, as text."""
    return f"{slot_bytes(expression, shape) / (shape[0] * shape[1]):.4g}"


def _states(card, expression):
    text = state_of(expression)
    if card.other_shape:
        rows, columns = card.other_shape
        text += f"; {state_of(expression, card.other_shape)} for a matrix of {rows} by {columns}"
    return text


def overview():
    """Returns the table of all optimizers."""
    rows = [
        [f"[{card.name}](#{card.name.lower()})", card.when, f"[{family(card)}]({card.family})"]
        for card in CARDS
    ]
    return table(["optimizer", "take it", "family page"], rows)


def family(card):
    return FAMILIES[card.family]


def card_text(card):
    """Returns a card."""
    expression = card.measured or card.example.replace("legacy_opt.", "")
    is_wrapper = card.family == "wrappers.md"
    rows = [
        ["slots of a variable `w`", slots_of(expression)],
        ["state, bytes per parameter", _states(card, expression)],
        ["equal to the original", originals(card.name)],
        ["meant to differ", card.differs],
        ["Keras' own", card.keras],
        ["PyTorch's own", card.torch],
        ["time of a step", speed(card.speed or card.name.replace("Optimizer", ""))],
    ]
    if is_wrapper:
        rows[0][0], rows[1][0] = "slots, added", "state, bytes per parameter, added"
        rows = [row for row in rows if row[1] != "–"]
    example = f"    optimizer = {card.example}".replace("\n", "\n    ")
    lines = [
        f"### {card.name}\n",
        f"Take it {card.when}. Family page: [{family(card)}]({card.family}).\n",
        f"$${card.formula}$$\n",
        "```python\nwith graph.as_default():",
        example,
        "    train_op = optimizer.minimize(loss, global_step=step)\n```\n",
        table([card.name, ""], rows),
    ]
    picture = f"images/curves/{card.name}.png"
    if (DOCS / picture).exists():
        lines.append(f"![The loss of {card.name} on the flights]({picture})\n")
    return "\n".join(lines)


def cards():
    """Returns all cards, with a heading for each family."""
    parts = []
    for page, title in FAMILIES.items():
        parts.append(f"## {title}\n")
        parts.extend(card_text(card) for card in CARDS if card.family == page)
    return "\n" + "\n".join(parts) + "\n"


def stock():
    """Returns the table of TensorFlow's own optimizers."""
    times = accelerated()
    rows = [
        [
            f"`{expression}`",
            slots_of(expression),
            state_of(expression),
            times.get(expression.partition("Optimizer")[0], "–"),
        ]
        for expression in STOCK
    ]
    return table(
        ["`tf.compat.v1.train`", "slots of a variable `w`", "bytes per parameter", "native"], rows
    )


MAKERS = {
    "overview": lambda page: overview(),
    "cards": lambda page: cards(),
    "stock": lambda page: stock(),
}


def gallery_text():
    """Returns the page of the gallery with a table of all curves in its folder."""
    names = sorted((path.stem for path in (DOCS / "images/curves").glob("*.png")), key=str.lower)
    cells = [
        f"![{name}: its log-loss over the year, the others in grey](images/curves/{name}.png)"
        for name in names
    ]
    rows = [[*cells[i : i + 2], ""][:2] for i in range(0, len(cells), 2)]
    return with_part(text_of(GALLERY), "curves", table(["", ""], rows))


def page_text():
    """Returns the page with new tables and cards."""
    return written(text_of(PAGE), None, MAKERS)


if __name__ == "__main__":
    (DOCS / PAGE).write_text(page_text(), encoding="utf-8")
    (DOCS / GALLERY).write_text(gallery_text(), encoding="utf-8")
