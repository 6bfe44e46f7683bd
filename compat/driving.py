"""What both bridges do with the v1 optimizer that they have adopted: feed it, and let it update."""

import contextlib
import numbers
import threading

import numpy as np
import tensorflow as tf

from legacy_opt import checks, versions
from legacy_opt.compat import adopted, clipping, composed, config, inspection, schedules
from legacy_opt.hyperparameters import unrounded


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


class Drives:
    """The half of a bridged optimizer that faces v1; mixed in before a class of Keras.

    Attributes are set in `vars(self)`, past Keras' own bookkeeping of what is assigned.
    """

    _adopted = None
    _kind = None  # the Keras that it is for, and the `api` by that name

    def _study(self, optimizer, learning_rate, keras, **arguments):
        """Finds out what there is to know of a v1 optimizer, before Keras' own constructor.

        Args:
          optimizer: the v1 optimizer.
          learning_rate: the user's word, or None.
          keras: this bridge's Keras.
          **arguments: `lr_attr`, `global_step_attr`, `fused` and `step_dtype`.
        """
        inspection.check_class(optimizer)
        rates = inspection.learning_rate_attributes(optimizer, arguments["lr_attr"])
        step = inspection.step_attribute(optimizer, arguments["global_step_attr"], rates)
        inspection.check_variables(optimizer, rates + (inspection.STEP_ATTRIBUTE, step))
        step_dtype = arguments.pop("step_dtype")
        step_dtype = step_dtype or getattr(getattr(optimizer, step or "", None), "dtype", tf.int64)
        step_dtype = tf.as_dtype(step_dtype).base_dtype
        fed = dict.fromkeys(rates, tf.float32)
        if step is not None:
            fed[step] = step_dtype
        found = inspection.hyperparameters(optimizer, fed)
        if rates:
            if learning_rate is None:
                learning_rate = vars(optimizer)[rates[0]]
            found["learning_rate"] = schedules.for_keras(learning_rate, self, keras)
        elif learning_rate is not None:
            reason = "with lr_attr=False"
            if arguments["lr_attr"] is not False:
                reason = "for one that was made with None, which is a schedule of its own"
            raise ValueError("learning_rate=%r %s." % (learning_rate, reason))
        constructor = inspection.constructor_arguments(type(optimizer))
        # What it makes of them, as PowerSign the logarithm of its base.
        made = vars(optimizer).get("_hyperparameter_names", ())
        vars(self).update(
            _arguments=arguments,
            _rates=rates,
            _step=step,
            _step_dtype=step_dtype,
            _v1_numbers=found,
            # Whether the learning rate counts updates, not batches of which several make one.
            _by_updates=schedules.is_v1_decay(learning_rate),
            _fixed=constructor.union(made) - {"name", "global_step", "lr"},
            _whole=inspection.overrides_apply_gradients(optimizer),
            _running=_Running(),
        )

    def __repr__(self):
        # What Keras shows of an optimizer that is not for it.
        name = type(self._adopted).__name__
        return "<%s, bridged to %s by to_keras(…, api=%r)>" % ((name,) + self._kind)

    def _adopt(self, optimizer):
        """Makes the copy of a v1 optimizer that this optimizer drives."""
        vars(self)["_adopted"] = adopted.adopt(optimizer, self)
        if not self.uses_fused_kernels and hasattr(self._adopted, "use_fused_kernels"):
            self._adopted.use_fused_kernels = False

    @property
    def uses_fused_kernels(self):
        """Whether TensorFlow's fused kernels are wanted: the argument `fused`."""
        return self._arguments["fused"]

    def alone(self):
        """The scope in which no other thread uses the adopted optimizer."""
        # Replicas are threads that wait for each other.
        return contextlib.ExitStack() if tf.distribute.has_strategy() else self._running.lock

    # One step.

    def _current_rate(self):
        """Returns this step's learning rate, a float32 tensor."""
        raise NotImplementedError

    def _current_step(self):
        """Returns the number of steps done, an integer tensor."""
        raise NotImplementedError

    def _current_hyperparameters(self):
        """Returns this step's other hyperparameters, a dict from names to tensors."""
        raise NotImplementedError

    def _told(self, grads_and_vars):
        """Tells a RuleOptimizer all that will be applied: it may do work for all at once."""
        if hasattr(self._adopted, "applying"):
            return self._adopted.applying(grads_and_vars)
        return contextlib.ExitStack()

    @contextlib.contextmanager
    def _driving(self, grads_and_vars):
        """The scope in which the adopted optimizer has what this step needs, but is unprepared."""
        if self._whole:
            self._check_one_replica()
        only_ours = adopted.no_foreign_variables(self._adopted, self)
        with self.alone(), self._fed(), self._told(grads_and_vars), only_ours:
            yield

    def _apply_whole(self, grads_and_vars, step, name=None):
        """Calls the optimizer's own apply_gradients, which advances `step` as well."""
        with self._hyperparameters_fed():
            return self._adopted.apply_gradients(grads_and_vars, step, name)

    def _check_one_replica(self):
        if tf.distribute.has_strategy():
            raise ValueError(
                "%s overrides apply_gradients, which TensorFlow calls for one replica only. Use it "
                "without a distribution strategy, or move that work to _prepare or _finish."
                % type(self._adopted).__name__
            )

    def _prepare_v1(self):
        with self._hyperparameters_fed():
            self._adopted._prepare()
        self._running.update_ops = []

    def _update_dense(self, grad, variable):
        self._check_dtype(grad, variable)
        with self._rate_of_dtype(grad.dtype):
            return self._noted(self._adopted._resource_apply_dense(grad, variable))

    def _update_sparse(self, grad, variable, indices):
        self._check_dtype(grad, variable)
        rule = None if self.uses_fused_kernels else composed.rule_for(self._adopted)
        if rule is not None:
            with adopted.sparse_updates_explained(self._adopted):
                one_each = clipping.summed(tf.IndexedSlices(grad, indices))
                return self._noted(
                    composed.apply_sparse(
                        rule, self._adopted, one_each.values, variable, one_each.indices
                    )
                )
        with self._rate_of_dtype(grad.dtype), adopted.sparse_updates_explained(self._adopted):
            return self._noted(
                self._adopted._resource_apply_sparse_duplicate_indices(grad, variable, indices)
            )

    def _check_dtype(self, grad, variable):
        # Some kernels of TensorFlow abort the process.
        checks.gradient_dtype(type(self._adopted).__name__, grad, variable)

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
        state = vars(self._adopted)
        before = {key: adopted.copied(value) for key, value in state.items()}
        running.applying = True
        try:
            if self._rates:
                rate = self._current_rate()
                state.update((attribute, rate) for attribute in self._rates)
            with self._step_fed():
                yield
        finally:
            running.applying = False
            running.update_ops = []
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
            lent[attribute] = tf.cast(fed, dtype)
            if dtype == tf.float64 and isinstance(number, numbers.Real):
                lent[attribute] = unrounded(fed, number, dtype)
        return self._lent(lent)

    def _hyperparameters_fed(self):
        """Gives `_prepare` this step's other hyperparameters; all else sees plain numbers."""
        fed = self._current_hyperparameters()
        return self._lent({"_" + name: value for name, value in fed.items()})

    def _step_fed(self):
        """Gives the adopted optimizer the step, as slots' dtypes and rules may go by it."""
        if self._step is None:
            return self._lent({})
        return self._lent({self._step: tf.cast(self._current_step(), self._step_dtype)})

    @contextlib.contextmanager
    def _fed_for_slots(self, new):
        """Gives `_create_slots` the step, and for new slots the hyperparameters as they are now.

        Args:
          new: whether there are slots to create.
        """
        known = new and tf.executing_eagerly() and not tf.distribute.has_strategy()
        names = self._other_names() if known else ()
        now = {"_" + name: self._current_number(name) for name in names}
        with self._lent(now), self._step_fed():
            yield

    # Hyperparameters and configuration.

    def _other_names(self):
        """Returns the names of the hyperparameters other than the learning rate."""
        return [name for name in self._v1_numbers if name != "learning_rate"]

    def _number_is_set(self, name, value):
        """Notes the number that a hyperparameter is set to, which is not rounded yet."""
        self._v1_numbers[name] = value
        for attribute in self._rates if name == "learning_rate" else ("_" + name,):
            vars(self._adopted)[attribute] = value

    def _check_settable(self, name):
        """Refuses to set what would have no effect.

        Raises:
          AttributeError: v1 does not read it anew in each step, or knows it by another name.
        """
        for known in vars(self).get("_v1_numbers", ()):  # not there yet in a copy
            alike = name.replace("_", "") == known.replace("_", "") and name != known
            if alike and not name.startswith("_"):
                raise AttributeError("There is no %s here. Set %s, v1's name." % (name, known))
        if name in vars(self).get("_fixed", ()) and name not in self._v1_numbers:
            raise AttributeError(
                "%s does not read %s anew in each step, so it cannot be changed while training. "
                "Make a new optimizer." % (type(self._adopted).__name__, name)
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

    def _with_v1(self, configuration):
        """Returns Keras' configuration of this optimizer with what there is to say of v1."""
        current = {name: self._current_number(name) for name in self._v1_numbers}
        result = dict(configuration, **self._arguments)
        cls = adopted.original_class(self._adopted)
        if self._rates:
            rate = result["learning_rate"] = current["learning_rate"]
            if not isinstance(rate, numbers.Real):
                current["learning_rate"] = 1.0  # the constructor wants some number
            for attribute in self._rates:
                current.setdefault(attribute.lstrip("_"), current["learning_rate"])
        if self._step_dtype != tf.int64:
            result["step_dtype"] = self._step_dtype.name
        skip = (self._step or inspection.STEP_ATTRIBUTE,)
        result["optimizer"] = config.to_config(self._adopted, cls, current, skip)
        return result


def _finish(optimizer, update_ops):
    return optimizer._finish(list(update_ops), "update")


def _holds_symbolic(value):
    if isinstance(value, dict):
        value = list(value.values())
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(versions.is_symbolic(item) for item in values)
