"""What a bridged optimizer knows of its v1 optimizer, and tells of it in configurations."""

import numbers

import tensorflow as tf

from legacy_opt.core.hyperparameters import takes_step

from ..v1_optimizers import (
    inspection,
    nesting,
    owned_state,
    schedules,
    serialization,
    step_inputs,
    supported,
)


class Studies:
    """The part of a bridged optimizer that studies v1; see `driving.Drives`."""

    @classmethod
    def _keras(cls):
        """Returns the Keras that this class is for."""
        raise NotImplementedError

    def _study(self, optimizer, learning_rate, **arguments):
        """Finds out what there is to know of a v1 optimizer, before Keras' own constructor.

        Args:
          optimizer: the v1 optimizer.
          learning_rate: the user's word, or None.
          **arguments: `lr_attr`, `global_step_attr`, `fused`, `step_dtype`, `learning_rates` and
            `by_updates`.
        """
        supported.check_class(optimizer)
        step_dtype = arguments.pop("step_dtype")
        schedules_told = arguments.pop("learning_rates")
        by_updates = arguments.pop("by_updates")
        feeds = step_inputs.feeds(
            optimizer, arguments["lr_attr"], arguments["global_step_attr"], step_dtype
        )
        everything, leaves = nesting.parts(optimizer), nesting.leaves(optimizer)
        fixed = set()
        for each, _ in everything:
            # What a constructor makes of its arguments, as PowerSign the logarithm of its base.
            fixed.update(vars(each).get("_hyperparameter_names", ()))
            fixed.update(inspection.constructor_arguments(type(each)))
        vars(self).update(
            _arguments=arguments,
            _feeds=feeds,
            _rates=(),
            _step_dtype=feeds[id(leaves[0])].step_dtype,  # in v1's checkpoints
            _v1_numbers={},
            # Whether the learning rate is one of v1's decays, which count updates, not batches of
            # which several make one, and compare integers.
            _by_updates=False,
            _accumulates=any(map(nesting.accumulates, everything)),
            _fixed=fixed - {"name", "global_step", "lr"} | ({"lr"} if len(leaves) > 1 else set()),
            _whole=supported.overrides_apply_gradients(optimizer),
        )
        if len(leaves) == 1:
            self._study_numbers(leaves[0], learning_rate)
        else:
            self._study_schedules(optimizer, leaves, learning_rate, schedules_told)
        if by_updates is not None:
            vars(self)["_by_updates"] = by_updates

    def _study_numbers(self, leaf, learning_rate):
        """Finds the hyperparameters of the only optimizer that updates variables."""
        feed = self._feeds[id(leaf)]
        fed = dict.fromkeys(feed.rates, tf.float32)
        if feed.step is not None:
            fed[feed.step] = feed.step_dtype
        found = inspection.hyperparameters(leaf, fed)
        if feed.rates:
            if learning_rate is None:
                learning_rate = vars(leaf)[feed.rates[0]]
            found["learning_rate"] = schedules.for_keras(learning_rate, self, self._keras())
        elif learning_rate is not None:
            reason = "with lr_attr=False"
            if self._arguments["lr_attr"] is not False:
                reason = "for one that was made with None, which is a schedule of its own"
            raise ValueError(f"learning_rate={learning_rate!r} {reason}.")
        by_updates = schedules.is_v1_decay(learning_rate)
        vars(self).update(_rates=feed.rates, _v1_numbers=found, _by_updates=by_updates)

    def _study_schedules(self, optimizer, leaves, learning_rate, told):
        """Finds the schedules by which several optimizers go."""
        if learning_rate is not None:
            raise ValueError(
                f"learning_rate={learning_rate!r}: {type(optimizer).__name__} holds "
                f"{len(leaves)} optimizers, each of which has a learning rate of its own. "
                "Pass it to them."
            )
        for leaf, schedule in zip(leaves, told or [None] * len(leaves)):
            feed = self._feeds[id(leaf)]
            if feed.rates:
                own = vars(leaf)[feed.rates[0]]
                given = own if schedule is None else schedule
                rate = schedules.for_keras(given, self, self._keras())
                # What v1 cannot call itself, or what goes by a step that stands still here.
                if callable(rate) and (rate is not own or takes_step(rate)):
                    self._feeds[id(leaf)] = feed._replace(schedule=rate)

    @property
    def goes_by_the_step(self):
        """Whether anything of v1 goes by the number of steps done."""
        feeds = [part.optimizer._feed for part in nesting.parts(self._adopted)]
        return any(feed.step is not None or feed.schedule or feed.counts for feed in feeds)

    def _with_v1(self, configuration):
        """Returns Keras' configuration of this optimizer with what there is to say of v1."""
        current = {name: self._current_number(name) for name in self._v1_numbers}
        result = dict(configuration, **self._arguments)
        if self._by_updates:
            result["by_updates"] = True
        if self._rates:
            rate = result["learning_rate"] = current["learning_rate"]
            if not isinstance(rate, numbers.Real):
                current["learning_rate"] = 1.0  # the constructor wants some number
            for attribute in self._rates:
                current.setdefault(attribute.lstrip("_"), current["learning_rate"])
        result.update(self._told_of_leaves())

        def told(optimizer):
            feed = optimizer._feed
            known = current if optimizer is self._leaf() else _own_rate(optimizer)
            skip = (feed.step or inspection.STEP_ATTRIBUTE,)
            cls = owned_state.original_class(optimizer)
            return serialization.to_config(optimizer, cls, known, skip, told)

        result["optimizer"] = told(self._adopted)
        return result

    def _told_of_leaves(self):
        """Returns what a configuration tells of steps and, of several optimizers, schedules."""
        leaves = nesting.leaves(self._adopted)
        feeds = [leaf._feed for leaf in leaves]
        result = {}
        dtypes = [feed.step_dtype.name for feed in feeds]
        if set(dtypes) != {tf.int64.name}:
            result["step_dtype"] = dtypes if len(dtypes) > 1 else dtypes[0]
        if any(feed.schedule is not None for feed in feeds):
            result["learning_rates"] = [self._told_schedule(leaf) for leaf in leaves]
        return result

    def _told_schedule(self, leaf):
        """Returns the schedule by which one of several optimizers goes as plain data, or None."""
        schedule = leaf._feed.schedule
        if schedule is None:
            return None
        if not hasattr(schedule, "get_config"):
            raise ValueError(
                f"{type(leaf).__name__} cannot be saved: its learning rate goes by "
                f"{schedule!r}, which is no plain data. Pass it a Keras schedule."
            )
        return self._keras().optimizers.schedules.serialize(schedule)

    @classmethod
    def _made_of(cls, configuration):
        """Returns a configuration with the v1 optimizer and its schedules made anew."""
        schedule_of = cls._keras().optimizers.schedules.deserialize
        made = dict(configuration, optimizer=serialization.from_config(configuration["optimizer"]))
        if made.get("learning_rates"):
            made["learning_rates"] = [
                None if told is None else schedule_of(told) for told in made["learning_rates"]
            ]
        return made


def _own_rate(optimizer):
    """Returns the learning rate of one of several optimizers, by what constructors may call it."""
    feed = optimizer._feed
    names = [attribute.lstrip("_") for attribute in feed.rates]
    if not names:
        return {}
    # Where it goes by a schedule, the constructor wants some number.
    rate = vars(optimizer)[feed.rates[0]] if feed.schedule is None else 1.0
    return dict.fromkeys(names + ["learning_rate"], rate)


def comes_too_late(name, value):
    """Returns the error for a hyperparameter that is set when a graph holds it as a constant."""
    return RuntimeError(
        f"{name}={value!r} comes too late: the graph that is built already holds {name} as a "
        "constant, since it would compute other bits from a variable. Set it before the "
        "first step."
    )
