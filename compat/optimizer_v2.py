"""The OptimizerV2 bridge: a Keras 2 optimizer that computes what a v1 optimizer computes.

Keras keeps the books (hyperparameters, slots, iterations, checkpoints, replicas); the v1 optimizer,
adopted, does the arithmetic. Importing this module imports Keras 2.
"""

import contextlib
import functools
import numbers

import numpy as np
import tensorflow as tf

from legacy_opt import checks, versions
from legacy_opt.compat import adopted, clipping, composed, config, inspection, schedules
from legacy_opt.compat.optimizer_v2_state import OwnsState


class BridgedOptimizer(OwnsState):
    """A Keras OptimizerV2 around a copy of a `tf.compat.v1.train.Optimizer`.

    Made by `legacy_opt.compat.to_keras`, which describes the arguments. Variables and slots equal
    those of the v1 optimizer in a graph-mode Session bit for bit, under `tf.function`, `fit` and in
    graph-mode Keras. Slots and shared variables (Adam's powers of beta) have the v1 names.
    (`step_dtype` is the dtype of a v1 global step that a configuration tells.)
    """

    _HAS_AGGREGATE_GRAD = True  # tells fit that apply_gradients sums over replicas
    _graph_is_built = False
    _applying = False

    def __init__(
        self,
        optimizer,
        learning_rate=None,
        name=None,
        lr_attr=None,
        global_step_attr=None,
        fused=True,
        step_dtype=None,
        **keras_arguments,
    ):
        inspection.check_class(optimizer)
        rates = inspection.learning_rate_attributes(optimizer, lr_attr)
        step = inspection.step_attribute(optimizer, global_step_attr, rates)
        inspection.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
        self._arguments = {"lr_attr": lr_attr, "global_step_attr": global_step_attr, "fused": fused}
        self._rates, self._step = rates, step
        dtype = step_dtype or getattr(getattr(optimizer, step or "", None), "dtype", tf.int64)
        self._step_dtype = tf.as_dtype(dtype).base_dtype
        self._whole = inspection.overrides_apply_gradients(optimizer)
        super().__init__(optimizer.get_name() if name is None else name, **keras_arguments)
        self._adopted = adopted.adopt(optimizer, self)
        if not fused and hasattr(self._adopted, "use_fused_kernels"):
            self._adopted.use_fused_kernels = False
        self._set_hyperparameters(optimizer, learning_rate, keras_arguments.get("decay"))

    def _set_hyperparameters(self, optimizer, learning_rate, decay):
        """Makes Keras hyperparameters of what v1 reads anew in each step."""
        fed = dict.fromkeys(self._rates, tf.float32)
        if self._step is not None:
            fed[self._step] = self._step_dtype
        self._v1_numbers = inspection.hyperparameters(optimizer, fed)
        self._constants = set()  # the names of those that a graph holds as constants
        if self._rates:
            if learning_rate is None:
                learning_rate = vars(optimizer)[self._rates[0]]
            rate = schedules.for_keras(learning_rate, self)
            self._v1_numbers["learning_rate"] = rate
        elif learning_rate is not None:
            raise ValueError("learning_rate=%r with lr_attr=False." % (learning_rate,))
        if decay:
            if "decay" in self._v1_numbers:
                raise ValueError(
                    "decay=%r: %s has a decay of its own, so Keras' learning rate decay has no "
                    "place. Pass a learning rate schedule." % (decay, type(optimizer).__name__)
                )
            self._set_hyper("decay", decay)
        for name, value in self._v1_numbers.items():
            self._set_hyper(name, value)
        arguments = inspection.constructor_arguments(type(optimizer))
        self._fixed = arguments - {"name", "global_step", "lr"}

    # The step.

    def _distributed_apply(self, distribution, grads_and_vars, *args, **kwargs):
        pairs = list(grads_and_vars)
        only_ours = adopted.no_foreign_variables(self._adopted, self)
        with self.alone(), self._fed(), self._told(pairs), only_ours:
            with self._hyperparameters_fed():
                if self._whole:
                    return self._apply_whole(pairs, kwargs.get("name"))
                self._adopted._prepare()
            self._update_ops = []
            done = super()._distributed_apply(distribution, pairs, *args, **kwargs)
            finished = self._finish(distribution, [variable for _, variable in pairs])
        if tf.executing_eagerly():
            return done
        driven = self._drive_global_step([done])
        parts = []
        for value in [done, finished, driven]:
            for item in distribution.experimental_local_results(value):
                parts += [part for part in tf.nest.flatten(item) if part is not None]
        return tf.group(*parts)

    def _told(self, grads_and_vars):
        """Tells a RuleOptimizer all that will be applied: it may do work for all at once."""
        if hasattr(self._adopted, "applying"):
            return self._adopted.applying(grads_and_vars)
        return contextlib.ExitStack()

    def _apply_whole(self, grads_and_vars, name):
        """Calls the optimizer's own apply_gradients, which advances `iterations` as well."""
        if tf.distribute.has_strategy():
            raise ValueError(
                "%s overrides apply_gradients, which TensorFlow calls for one replica only. Use it "
                "without a distribution strategy, or move that work to _prepare or _finish."
                % type(self._adopted).__name__
            )
        return self._adopted.apply_gradients(grads_and_vars, self.iterations, name)

    def _resource_apply_dense(self, grad, handle, apply_state=None):
        self._check_dtype(grad, handle)
        with self._rate_of_dtype(grad.dtype):
            return self._noted(self._adopted._resource_apply_dense(grad, handle))

    def _resource_apply_sparse_duplicate_indices(self, grad, handle, indices, **kwargs):
        self._check_dtype(grad, handle)
        rule = None if self._arguments["fused"] else composed.rule_for(self._adopted)
        if rule is not None:
            with adopted.sparse_updates_explained(self._adopted):
                (pair,) = clipping.summed([(tf.IndexedSlices(grad, indices), handle)])
                grad, indices = pair[0].values, pair[0].indices
                return self._noted(
                    composed.apply_sparse(rule, self._adopted, grad, handle, indices)
                )
        with self._rate_of_dtype(grad.dtype), adopted.sparse_updates_explained(self._adopted):
            return self._noted(
                self._adopted._resource_apply_sparse_duplicate_indices(grad, handle, indices)
            )

    def _resource_apply_sparse(self, grad, handle, indices, apply_state=None):
        return self._resource_apply_sparse_duplicate_indices(grad, handle, indices)

    def _check_dtype(self, grad, variable):
        # Some kernels of TensorFlow abort the process.
        checks.gradient_dtype(type(self._adopted).__name__, grad, variable)

    def _noted(self, op):
        if op is not None:
            self._update_ops.append(op)
        return op

    def _finish(self, distribution, variables):
        # Where there are replicas, and Keras has not merged them, each finishes its own.
        extended = distribution.extended
        if tf.distribute.has_strategy() and tf.distribute.in_cross_replica_context():
            return extended.update_non_slot(
                extended.non_slot_devices(variables),
                _finish,
                args=(self._adopted, self._update_ops),
                group=False,
            )
        return _finish(self._adopted, self._update_ops)

    def _drive_global_step(self, after):
        """Advances the graph's global step where the learning rate is a tensor made from it."""
        step = schedules.step_behind(self._hyper.get("learning_rate"))
        if step is None:
            return None
        with tf.control_dependencies(after):
            return step.assign(tf.cast(self.iterations.read_value(), step.dtype.base_dtype)).op

    @contextlib.contextmanager
    def _fed(self):
        """Gives the adopted optimizer this step's learning rate and step.

        What it keeps of Python's own stays. The tensors of a graph it keeps are dropped afterwards.
        """
        if self._applying:  # another replica's thread, while this one waits for it
            yield
            return
        state = vars(self._adopted)
        before = dict(state)
        self._applying = True
        try:
            if self._rates:
                rate = self._decayed_lr(tf.float32)
                state.update((attribute, rate) for attribute in self._rates)
            with self._step_fed():
                yield
        finally:
            self._applying = False
            self._update_ops = []
            for key in list(state):
                if key in self._rates or _holds_symbolic(state[key]):
                    if key in before:
                        state[key] = before[key]
                    else:
                        del state[key]

    @contextlib.contextmanager
    def _lent(self, attributes):
        """Gives the adopted optimizer these attributes for a while."""
        state = vars(self._adopted)
        before = {attribute: state[attribute] for attribute in attributes}
        state.update(attributes)
        try:
            yield
        finally:
            state.update(before)

    def _rate_of_dtype(self, dtype):
        """Casts the learning rate for updates that read it themselves, past `_prepare`.

        There v1 has a Python number, which goes with any dtype and is not rounded to float32.
        """
        if dtype == tf.float32:
            return self._lent({})
        number = self._v1_numbers.get("learning_rate")
        lent = {}
        for attribute in self._rates:
            fed = vars(self._adopted)[attribute]
            lent[attribute] = rate = tf.cast(fed, dtype)
            if dtype == tf.float64 and isinstance(number, numbers.Real):
                unrounded = tf.constant(number, dtype)
                is_number = tf.equal(fed, np.float32(number))
                lent[attribute] = tf.compat.v2.where(is_number, unrounded, rate)
        return self._lent(lent)

    def _hyperparameters_fed(self):
        """Gives `_prepare` this step's other hyperparameters; all else sees plain numbers."""
        if self._constants and not tf.executing_eagerly():
            self._graph_is_built = True
        names = [name for name in self._other_names() if name not in self._constants]
        fed = {"_" + name: tf.convert_to_tensor(self._get_hyper(name)) for name in names}
        return self._lent(fed)

    def _step_fed(self):
        """Gives the adopted optimizer the step, as slots' dtypes and rules may go by it."""
        if self._step is None:
            return self._lent({})
        step = tf.cast(self.iterations.read_value(), self._step_dtype)
        return self._lent({self._step: step})

    @contextlib.contextmanager
    def _fed_for_slots(self, new):
        """Gives `_create_slots` the step, and for new slots the hyperparameters as they are now."""
        known = new and tf.executing_eagerly() and not tf.distribute.has_strategy()
        names = self._other_names() if known else ()
        now = {"_" + name: self._current_number(name) for name in names}
        with self._lent(now), self._step_fed():
            yield

    # Hyperparameters and configuration.

    def _other_names(self):
        """Returns the names of the hyperparameters other than the learning rate."""
        return [name for name in self._v1_numbers if name != "learning_rate"]

    def _set_hyper(self, name, value):
        if name in self._v1_numbers and isinstance(value, (numbers.Real, np.generic)):
            value = value.item() if isinstance(value, np.generic) else value
            constant = name in self._constants
            if constant and self._graph_is_built:
                raise RuntimeError(
                    "%s=%r comes too late: the graph that is built already holds %s as a constant, "
                    "since it would compute other bits from a variable. Set it before the first "
                    "step." % (name, value, name)
                )
            self._v1_numbers[name] = value
            for attribute in self._rates if name == "learning_rate" else ("_" + name,):
                vars(self._adopted)[attribute] = value
            if constant:
                return
        elif name in self._constants:
            self._constants.remove(name)
        super()._set_hyper(name, value)

    def _create_hypers(self):
        if not self._hypers_created:
            with tf.init_scope():
                if not tf.executing_eagerly() or versions.regroups_constant_factors():
                    # TensorFlow's graph rewriting computes other bits with a constant than with a
                    # variable, and in v1 it is a constant. Keras makes no variable of a callable.
                    for name in self._other_names():
                        if isinstance(self._hyper[name], numbers.Real):
                            self._constants.add(name)
                            number = functools.partial(dict.get, self._v1_numbers, name)
                            self._hyper[name] = number
        super()._create_hypers()

    def __setattr__(self, name, value):
        if name in vars(self).get("_fixed", ()) and name not in self._hyper:
            raise AttributeError(
                "%s does not read %s anew in each step, so it cannot be changed while training. "
                "Make a new optimizer." % (type(self._adopted).__name__, name)
            )
        super().__setattr__(name, value)

    def _current_number(self, name):
        """Returns a hyperparameter for the configuration: unrounded if nothing has changed it."""
        value = self._serialize_hyperparameter(name)
        if tf.is_tensor(value):  # what a function returned
            value = versions.keras_2().backend.get_value(value)
        number = self._v1_numbers.get(name)
        if isinstance(number, numbers.Real) and np.float32(number) == value:
            return number
        return value.item() if isinstance(value, (np.generic, np.ndarray)) else value

    def get_config(self):
        """Returns plain data from which `from_config` makes the same optimizer, without its state.

        Raises:
          ValueError: an argument of the v1 optimizer cannot be read or is no plain data.
        """
        current = {name: self._current_number(name) for name in self._v1_numbers}
        result = super().get_config()
        result.update(self._arguments)
        cls = adopted.original_class(self._adopted)
        if self._rates:
            rate = current["learning_rate"] = result["learning_rate"] = current["learning_rate"]
            if not isinstance(rate, numbers.Real):
                current["learning_rate"] = 1.0  # the constructor wants some number
            for attribute in self._rates:
                current.setdefault(attribute.lstrip("_"), current["learning_rate"])
        if self._step_dtype != tf.int64:
            result["step_dtype"] = self._step_dtype.name
        if self._initial_decay:
            result["decay"] = self._initial_decay
        skip = (self._step or inspection.STEP_ATTRIBUTE,)
        result["optimizer"] = config.to_config(self._adopted, cls, current, skip)
        return result

    @classmethod
    def from_config(cls, config_, custom_objects=None):
        """Makes the optimizer that `get_config` described.

        Raises:
          ValueError: the v1 optimizer's class is not registered.
        """
        config_ = dict(config_)
        config_["optimizer"] = config.from_config(config_["optimizer"])
        return super().from_config(config_, custom_objects=custom_objects)


def _finish(optimizer, update_ops):
    return optimizer._finish(list(update_ops), "update")


def _holds_symbolic(value):
    if isinstance(value, dict):
        value = list(value.values())
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(versions.is_symbolic(item) for item in values)


versions.register_with_keras_2(BridgedOptimizer)
