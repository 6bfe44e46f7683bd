"""What both bridges do with the v1 optimizer that they have adopted: feed it, and let it update."""

import contextlib
import numbers
import threading

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import duplicate_ids, gradient_checks
from legacy_opt.core.hyperparameters import unrounded
from legacy_opt.wrappers.base import OptimizerWrapper

from ..v1_optimizers import copying, nesting, owned_state, schedules
from . import refusals, sparse_updates_without_kernels
from .settings import Studies


class Lock:
    """A lock for the threads of one optimizer, of which a copied optimizer gets a new one."""

    def __init__(self):
        self._lock = threading.RLock()

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)

    def __deepcopy__(self, memo):
        return Lock()

    def __reduce__(self):
        return Lock, ()


class _Running:
    """What lasts for one step only, apart from the lock."""

    def __init__(self):
        self.lock = Lock()
        self.applying = False
        self.update_ops = []


class Drives(Studies):
    """The half of a bridged optimizer that faces v1; mixed in before a class of Keras.

    Attributes are set in `vars(self)`, past Keras' own bookkeeping of what is assigned.
    """

    _adopted = None
    _kind = None  # the Keras that it is for, and the `api` by that name

    def __repr__(self):
        # What Keras shows of an optimizer that is not for it.
        name = type(self._adopted).__name__
        keras, api = self._kind
        return f"<{name}, bridged to {keras} by to_keras(…, api={api!r})>"

    def _adopt(self, optimizer):
        """Makes the copy of a v1 optimizer that this optimizer drives."""
        copy = owned_state.adopt(optimizer, self, vars(self).pop("_feeds"))
        vars(self).update(_adopted=copy, _running=_Running())
        for leaf in nesting.leaves(self._adopted):
            if not self.uses_fused_kernels and hasattr(leaf, "use_fused_kernels"):
                leaf.use_fused_kernels = False

    def _leaf(self):
        """Returns the adopted optimizer whose numbers are this optimizer's; None of several."""
        leaves = nesting.leaves(self._adopted)
        return leaves[0] if len(leaves) == 1 else None

    @property
    def uses_fused_kernels(self):
        """Whether TensorFlow's fused kernels are wanted: the argument `fused`."""
        return self._arguments["fused"]

    def alone(self):
        """The scope in which no other thread uses the adopted optimizer."""
        # Replicas are threads that wait for each other.
        return contextlib.ExitStack() if tf.distribute.has_strategy() else self._running.lock

    # One step.

    def _held_rate(self):
        """Returns what this optimizer's learning rate is, or is computed from."""
        return self._v1_numbers.get("learning_rate")

    def _current_rate(self):
        """Returns this step's learning rate, a float32 tensor."""
        raise NotImplementedError

    def _current_step(self):
        """Returns the number of steps done, an integer tensor."""
        raise NotImplementedError

    def _step_variable(self):
        """Returns the variable that holds the number of steps done, a tf.Variable."""
        raise NotImplementedError

    def _current_hyperparameters(self):
        """Returns this step's other hyperparameters, a dict from names to tensors."""
        raise NotImplementedError

    def _told(self, grads_and_vars):
        """Tells a RuleOptimizer all that will be applied: it may do work for all at once."""
        if hasattr(self._adopted, "applying") and not self._whole:
            return self._adopted.applying(grads_and_vars)
        return contextlib.ExitStack()

    @contextlib.contextmanager
    def _driving(self, grads_and_vars):
        """The scope in which the adopted optimizer has what this step needs, but is unprepared."""
        if self._whole:
            self._check_one_replica()
        only_ours = refusals.no_foreign_variables(self._adopted, self)
        with self.alone(), self._fed(), self._told(grads_and_vars), only_ours:
            yield

    @tf.autograph.experimental.do_not_convert  # there is nothing to convert, which takes seconds
    def _apply_whole(self, grads_and_vars, step, name=None):
        """Calls the optimizer's own apply_gradients, which advances `step` as well."""
        is_leaf = self._leaf() is self._adopted  # what is inside a wrapper feeds itself
        with self.hyperparameters_fed() if is_leaf else contextlib.ExitStack():
            return self._adopted.apply_gradients(grads_and_vars, step, name)

    def _check_one_replica(self):
        if tf.distribute.has_strategy():
            if isinstance(self._adopted, OptimizerWrapper):
                raise ValueError(
                    f"{type(self._adopted).__name__} hands whole gradients on to other "
                    "optimizers, through to_keras for one replica only. Use it without a "
                    "distribution strategy."
                )
            raise ValueError(
                f"{type(self._adopted).__name__} overrides apply_gradients, which TensorFlow "
                "calls for one replica only. Use it without a distribution strategy, or move "
                "that work to _prepare or _finish."
            )

    def _prepare_v1(self):
        with self.hyperparameters_fed():
            self._adopted._prepare()
        self._running.update_ops = []

    def _update_dense(self, grad, variable):
        update = self._adopted._resource_apply_dense
        return self._noted(self.update_dense(self._adopted, update, grad, variable))

    def _update_sparse(self, grad, variable, indices):
        update = self._adopted._resource_apply_sparse_duplicate_indices
        return self._noted(self.update_sparse(self._adopted, update, grad, variable, indices))

    def update_dense(self, optimizer, update, grad, variable):
        """Has an adopted optimizer update a variable by its own method `update`."""
        self._check_dtype(optimizer, grad, variable)
        with self._rate_of_dtype(optimizer, grad.dtype):
            return update(grad, variable)

    def update_sparse(self, optimizer, update, grad, variable, indices):
        """Has an adopted optimizer update the rows of a variable by its own method `update`."""
        self._check_dtype(optimizer, grad, variable)
        original = owned_state.original_class(optimizer)
        rule = (
            None if self.uses_fused_kernels else sparse_updates_without_kernels.rule_for(original)
        )
        if rule is not None:
            with refusals.sparse_updates_explained(optimizer):
                one_each = duplicate_ids.summed(tf.IndexedSlices(grad, indices))
                return sparse_updates_without_kernels.apply_sparse(
                    rule, optimizer, one_each.values, variable, one_each.indices
                )
        explained = refusals.sparse_updates_explained(optimizer)
        with self._rate_of_dtype(optimizer, grad.dtype), explained:
            return update(grad, variable, indices)

    @staticmethod
    def _check_dtype(optimizer, grad, variable):
        # Some kernels of TensorFlow abort the process.
        gradient_checks.gradient_dtype(type(optimizer).__name__, grad, variable)

    def _noted(self, op):
        if op is not None:
            self._running.update_ops.append(op)
        return op

    def _finish(self, distribution, variables):
        # Where there are replicas, and Keras has not merged them, each finishes its own.
        extended, update_ops = distribution.extended, self._running.update_ops
        if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
            return extended.update_non_slot(
                extended.non_slot_devices(variables),
                _finish,
                args=(self._adopted, update_ops),
                group=False,
            )
        return _finish(self._adopted, update_ops)

    def decays(self, variable):
        """Whether the v1 optimizer's own weight decay is for this variable too."""
        del variable
        return True

    def _v1_rates(self):
        """Returns the learning rates that v1 goes by, as it was given them or as they were set."""
        if self._leaf() is not None:
            return [self._held_rate()]
        leaves = nesting.leaves(self._adopted)
        return [vars(leaf)[attribute] for leaf in leaves for attribute in leaf._feed.rates]

    # What the adopted optimizer is lent for a while.

    @contextlib.contextmanager
    def _fed(self):
        """Gives the adopted optimizer this step's learning rate and step.

        What it keeps of Python's own stays. The tensors of a graph it keeps are dropped afterwards.
        """
        running = self._running
        if running.applying:  # another replica's thread, while this one waits for it
            yield
            return
        everything = [part.optimizer for part in nesting.parts(self._adopted)]
        before = [
            {key: copying.copied(value) for key, value in vars(each).items()} for each in everything
        ]
        running.applying = True
        try:
            for each in everything:
                vars(each).update(self._fed_rates(each._feed))
            with self._step_fed():
                yield
        finally:
            running.applying = False
            running.update_ops = []
            for each, known in zip(everything, before):
                _restore(vars(each), known, each._feed.rates)

    def _fed_rates(self, feed):
        """Returns the attributes that hold the learning rate of an optimizer, as it is now."""
        if not feed.is_fed_a_rate:
            return {}
        if feed.by_keras:
            rate = self._current_rate()
        else:
            rate = schedules.at_step(feed.schedule, self._current_step())
        return dict.fromkeys(feed.rates, rate)

    def _rate_of_dtype(self, optimizer, dtype):
        """Casts the learning rate for updates that read it themselves, past `_prepare`.

        There v1 has a Python number, which goes with any dtype and is not rounded to float32.
        """
        feed = optimizer._feed
        if dtype == tf.float32 or not feed.is_fed_a_rate:
            return contextlib.ExitStack()
        number = self._v1_numbers.get("learning_rate") if feed.by_keras else None
        lent = {}
        for attribute in feed.rates:
            fed = vars(optimizer)[attribute]
            lent[attribute] = tf.cast(fed, dtype)
            if dtype == tf.float64 and isinstance(number, numbers.Real):
                lent[attribute] = unrounded(fed, number, dtype)
        return _lent(optimizer, lent)

    def hyperparameters_fed(self):
        """Gives `_prepare` this step's other hyperparameters; all else sees plain numbers."""
        if not self._v1_numbers:
            return contextlib.ExitStack()
        fed = self._current_hyperparameters()
        return _lent(self._leaf(), {"_" + name: value for name, value in fed.items()})

    @contextlib.contextmanager
    def _step_fed(self):
        """Gives all that is adopted the step, as slots' dtypes and rules may go by it."""
        with contextlib.ExitStack() as stack:
            for part in nesting.parts(self._adopted):
                stack.enter_context(self.step_fed_to(part.optimizer))
            yield

    def step_fed_to(self, optimizer):
        """Gives an adopted optimizer the step."""
        feed = optimizer._feed
        lent = dict.fromkeys(feed.counts, self._step_variable() if feed.counts else None)
        if feed.step is not None:
            lent[feed.step] = tf.cast(self._current_step(), feed.step_dtype)
        return _lent(optimizer, lent)

    @contextlib.contextmanager
    def _fed_for_slots(self, new):
        """Gives `_create_slots` the step, and for new slots the hyperparameters as they are now.

        Args:
          new: whether there are slots to create.
        """
        known = new and tf.executing_eagerly() and not tf.distribute.has_strategy()
        names = self._other_names() if known else ()
        now = {"_" + name: self._current_number(name) for name in names}
        with _lent(self._leaf(), now) if now else contextlib.ExitStack(), self._step_fed():
            yield

    # Hyperparameters and configuration.

    def _other_names(self):
        """Returns the names of the hyperparameters other than the learning rate."""
        return [name for name in self._v1_numbers if name != "learning_rate"]

    def _number_is_set(self, name, value):
        """Notes the number that a hyperparameter is set to, which is not rounded yet."""
        self._v1_numbers[name] = value
        for attribute in self._rates if name == "learning_rate" else ("_" + name,):
            vars(self._leaf())[attribute] = value

    def _rate_is_set(self, given, rate):
        """Notes the learning rate that is set: as it was given, and as Keras takes it."""
        self._number_is_set("learning_rate", rate)
        by_updates = vars(self)["_by_updates"] = schedules.is_v1_decay(given)
        if by_updates:  # which v1 goes by, if it is to have it back
            vars(self._leaf()).update(dict.fromkeys(self._rates, given))

    def _check_settable(self, name):
        """Refuses to set what would have no effect.

        Raises:
          AttributeError: v1 does not read it anew in each step, or knows it by another name.
        """
        for known in vars(self).get("_v1_numbers", ()):  # not there yet in a copy
            alike = name.replace("_", "") == known.replace("_", "") and name != known
            if alike and not name.startswith("_"):
                raise AttributeError(f"There is no {name} here. Set {known}, v1's name.")
        if name not in vars(self).get("_fixed", ()) or name in self._v1_numbers:
            return
        if name in ("learning_rate", "lr") and self._leaf() is None:
            raise AttributeError(
                f"{type(self._adopted).__name__} holds several optimizers, each of which has "
                "a learning rate of its own. Give one a tf.Variable as learning rate, and "
                "assign to that."
            )
        raise AttributeError(
            f"{type(self._adopted).__name__} does not read {name} anew in each step, so it "
            "cannot be changed while training. Make a new optimizer."
        )

    def _present_value(self, name):
        """Returns what a hyperparameter is now: a number, or the configuration of a schedule."""
        raise NotImplementedError

    def _current_number(self, name):
        """Returns a hyperparameter for the configuration: unrounded if nothing has changed it."""
        value = self._present_value(name)
        number = self._v1_numbers.get(name)
        if isinstance(number, numbers.Real) and np.float32(number) == value:
            return number
        return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


@contextlib.contextmanager
def _lent(optimizer, attributes):
    """Gives an adopted optimizer these attributes for a while."""
    state = vars(optimizer)
    before = {attribute: state[attribute] for attribute in attributes}
    state.update(attributes)
    try:
        yield
    finally:
        state.update(before)


def _restore(state, before, fed):
    """Gives an optimizer back what it was fed in place of, and what graphs have put there."""
    for key in list(state):
        if key in fed or _holds_symbolic(state[key]):
            if key in before:
                state[key] = before[key]
            else:
                del state[key]


def _finish(optimizer, update_ops):
    return optimizer._finish(list(update_ops), "update")


def _holds_symbolic(value):
    if isinstance(value, dict):
        value = list(value.values())
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(versions.is_symbolic(item) for item in values)
