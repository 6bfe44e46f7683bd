"""Trains different variables of one model with different optimizers."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Type

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core import argument_checks, gradient_pairs
from legacy_opt.core.gradient_values import some_gradients
from legacy_opt.core.types import (
    GradAndVar,
    GradsAndVars,
    Loss,
    Operation,
    Self,
    V1Optimizer,
    Variable,
)
from legacy_opt.core.user_warnings import warn
from legacy_opt.core.variable_lists import variables_in
from legacy_opt.wrappers import multi_optimizer_routes
from legacy_opt.wrappers.base import OptimizerWrapper, parts_of_a_step, whole_step
from legacy_opt.wrappers.multi_optimizer_routes import Collection, Route, Which
from legacy_opt.wrappers.nested_optimizers import all_optimizers_in

v1 = tf.compat.v1


class MultiOptimizer(OptimizerWrapper):
    """Combines several optimizers into one, in which each optimizer trains different variables.

    There is one backward pass for all variables, unless an inner optimizer has its own
    `compute_gradients` (see below). The global step is incremented once, after all updates. Every
    variable with a gradient must be assigned to exactly one optimizer; otherwise the error message
    lists the variables. If no variable of an optimizer has a gradient, the optimizer is not called.

    Each optimizer computes the same updates as if it were used alone with these gradients. Slots,
    and shared variables such as Adam's powers of beta, have the same names as in a program that
    calls `apply_gradients` of each optimizer in the order of the routes. Therefore checkpoints can
    be exchanged with such a program. (The powers of beta of a second Adam are `beta1_power_1` and
    `beta2_power_1`, so the names depend on the order of the routes.)

    An inner optimizer with its own `compute_gradients` (because it scales the loss, or sums over
    workers) computes the gradients of its variables in a separate backward pass. If possible, wrap
    the MultiOptimizer in such an optimizer instead. A `SyncReplicasOptimizer` must always wrap the
    MultiOptimizer, and cannot be an inner optimizer.

    Example::

        with tf.Graph().as_default():
            wide = tf.compat.v1.get_variable("wide/weights", [9])
            table = tf.compat.v1.get_variable("deep/table", [9])
            step = tf.compat.v1.train.get_or_create_global_step()
            ftrl = tf.compat.v1.train.FtrlOptimizer(0.1)
            adagrad = legacy_opt.AdagradDecayOptimizer(0.1, step)
            optimizer = legacy_opt.MultiOptimizer([(ftrl, "wide/"), (adagrad, [table])])
            train_op = optimizer.minimize(tf.reduce_sum(wide + table), global_step=step)

    Args:
      routes: a list of pairs (optimizer, which). `which` is one of

        * a string: a regular expression that must match the beginning of the variable's name, like
          the argument `scope` of `tf.compat.v1.get_collection`. For example, "wide" matches
          `wide/…` and `wide_dense:0`;
        * a variable, or a list or tuple of variables (a partitioned variable means all its
          partitions);
        * `MultiOptimizer.collection("name")`: the variables that are in the graph collection "name"
          when gradients are applied;
        * a function that takes a variable and returns whether the optimizer trains it.

        An optimizer may have several routes.
      default: the optimizer of all variables that no route matches, or None.
      name: the name of the operation that runs the whole training step.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: there is no route; the `which` of a route is empty or an invalid regular
        expression; an optimizer is nested in several of the inner optimizers, so that it would run
        several times in a training step; or an inner optimizer is a `SyncReplicasOptimizer`.
    """

    def __init__(
        self,
        routes: Sequence[Tuple[V1Optimizer, Which]],
        default: Optional[V1Optimizer] = None,
        name: str = "MultiOptimizer",
    ) -> None:
        class_name = type(self).__name__
        self._routes = multi_optimizer_routes.make_routes(class_name, routes)
        # The route of variables that no other route matches: a tuple with one item, or empty.
        self._default = () if default is None else (Route(default, which=None),)
        # An optimizer with several routes occurs once, and gets the gradients of all these routes.
        inner = {id(route.optimizer): route.optimizer for route in self._routes + self._default}
        super().__init__(inner.values(), name=name)
        _check_nesting(class_name, self._wrapped)

    @staticmethod
    def collection(name: str) -> Collection:
        """Returns a `which` that matches the variables of a graph's collection."""
        return Collection(argument_checks.text("name", name))

    def get_config(self) -> Dict[str, Any]:
        """Returns the configuration for `from_config`, to save Keras models (see `to_keras`).

        Raises:
          ValueError: a route's `which` is not a regular expression.
        """
        numbers = {id(inner): number for number, inner in enumerate(self._wrapped)}
        for route in self._routes:
            if not isinstance(route.which, str):
                raise ValueError(
                    f"{type(self).__name__} cannot be saved: its route {route} is not a regular "
                    "expression. Use regular expressions for all routes, or save the model without "
                    "its optimizer."
                )
        default = [numbers[id(route.optimizer)] for route in self._default]
        return {
            "optimizers": list(self._wrapped),
            "routes": [[numbers[id(route.optimizer)], route.which] for route in self._routes],
            "default": default[0] if default else None,
            "name": self._name,
        }

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Creates an optimizer from the result of `get_config`."""
        optimizers = config["optimizers"]
        routes = [(optimizers[number], which) for number, which in config["routes"]]
        number = config.get("default")
        default = None if number is None else optimizers[number]
        return cls(routes, default=default, name=config["name"])

    def route(self, var_list: Iterable[Variable]) -> List[Tuple[V1Optimizer, List[Variable]]]:
        """Returns the variables that each optimizer trains.

        Args:
          var_list: a list of variables.

        Returns:
          A list of pairs (optimizer, list of its variables). Each optimizer occurs once, in the
          order of the routes.

        Raises:
          ValueError: a variable has no optimizer or several optimizers, or is listed twice.
        """
        variables = list(variables_in([var_list], "var_list"))
        matched = self._routes_with_warning(variables)
        multi_optimizer_routes.check_matched(type(self).__name__, self._routes, matched)
        return self._by_optimizer(matched, variables)

    def compute_gradients(
        self, loss: Loss, var_list: Optional[Iterable[Variable]] = None, *args: Any, **kwargs: Any
    ) -> List[GradAndVar]:
        """See `tf.compat.v1.train.Optimizer.compute_gradients`.

        Raises:
          ValueError: `var_list` is None, although the loss is a function and an inner optimizer has
            its own `compute_gradients`.
        """
        gradient_pairs.check_variables(type(self).__name__, var_list)
        # TensorFlow's own method. OptimizerWrapper.compute_gradients is for one inner optimizer.
        compute = super(OptimizerWrapper, self).compute_gradients
        separate: Dict[Any, List[Variable]] = {
            id(inner): [] for inner in self._wrapped if _computes_gradients_itself(inner)
        }
        if not separate:
            return compute(loss, var_list, *args, **kwargs)
        if var_list is None:
            if callable(loss):
                raise ValueError(
                    f"{type(self).__name__}.compute_gradients needs var_list=…, because an inner "
                    "optimizer has its own compute_gradients."
                )
            var_list = v1.trainable_variables()
        variables = list(variables_in([var_list], "var_list"))
        together = []  # the variables that are not in `separate`
        for variable, routes in self._routes_with_warning(variables):
            key = id(routes[0].optimizer) if routes else None
            separate.get(key, together).append(variable)
        pairs = []
        if together or not variables:  # without any variable, TensorFlow raises its own error
            pairs += compute(loss, together, *args, **kwargs)
        for inner in self._wrapped:
            if separate.get(id(inner)):
                pairs += inner.compute_gradients(loss, separate[id(inner)], *args, **kwargs)
        # In the order of `var_list`. Variables that an inner optimizer adds follow at the end.
        positions = {id(variable): position for position, variable in enumerate(variables)}
        return sorted(pairs, key=lambda pair: positions.get(id(pair[1]), len(positions)))

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.apply_gradients`.

        Raises:
          TypeError: see `legacy_opt.RuleOptimizer.apply_gradients`; or `global_step` is not a
            variable.
          ValueError: a variable with a gradient has no optimizer or several optimizers, or is
            listed twice; or no variable has a gradient.
        """
        class_name = type(self).__name__
        with gradient_pairs.protected(class_name, grads_and_vars) as pairs:
            some_gradients(class_name, pairs)  # raises an error if all gradients are None
            matched = self._routes_with_warning([variable for _, variable in pairs])
            trained = [each for each, (gradient, _) in zip(matched, pairs) if gradient is not None]
            multi_optimizer_routes.check_matched(class_name, self._routes, trained)
            parts = []
            with parts_of_a_step(global_step):
                for inner, share in self._by_optimizer(matched, pairs):
                    if any(gradient is not None for gradient, _ in share):
                        parts.append(inner.apply_gradients(share))
            return whole_step(parts, global_step, name or self.get_name())

    def variable_name(self, variable: Variable) -> str:
        """Returns the name that regular expressions must match."""
        return self._name_in_keras(variable)

    @staticmethod  # The copies that `to_keras` creates have another method of this name.
    def _name_in_keras(variable: Variable) -> str:
        return versions.distributed_variable(variable).name  # the same name in all replicas

    def _create_slots(self, var_list: Sequence[Variable]) -> None:
        for inner, variables in self._by_optimizer(self.routes_of(var_list), var_list):
            if variables:
                inner._create_slots(variables)

    def routes_of(self, variables: Iterable[Variable]) -> List[Tuple[Variable, List[Route]]]:
        """Returns pairs (variable, the routes that match it).

        A variable that no route matches gets the default route, if there is one.
        """
        conditions = [(route, route.condition(self.variable_name)) for route in self._routes]
        matched = []
        for variable in variables:
            routes = [route for route, matches in conditions if matches(variable)]
            matched.append((variable, routes or list(self._default)))
        return matched

    def _routes_with_warning(self, variables: Iterable[Any]) -> List[Tuple[Variable, List[Route]]]:
        matched = self.routes_of(variables)
        used = {id(route) for _, routes in matched for route in routes}
        unused = [str(route) for route in self._routes if id(route) not in used]
        if unused and self._default:
            warn(
                f"{type(self).__name__}: no variable matches {', '.join(unused)}; variables that "
                f"no route matches go to {self._default[0]}.",
                UserWarning,
            )
        return matched

    def _by_optimizer(
        self, matched: List[Tuple[Variable, List[Route]]], items: Iterable[Any]
    ) -> List[Tuple[V1Optimizer, List[Any]]]:
        """Returns pairs (optimizer, its items) of the variables with exactly one optimizer."""
        shares = {id(inner): [] for inner in self._wrapped}
        for (_, routes), item in zip(matched, items):
            keys = {id(route.optimizer) for route in routes}
            if len(keys) == 1:
                shares[keys.pop()].append(item)
        return [(inner, shares[id(inner)]) for inner in self._wrapped]


def _computes_gradients_itself(optimizer: Any) -> bool:
    """Whether an optimizer or an inner optimizer overrides TensorFlow's `compute_gradients`."""
    # A function that replaces the method in this object has no __func__.
    method = getattr(optimizer.compute_gradients, "__func__", None)
    if method in (OptimizerWrapper.compute_gradients, MultiOptimizer.compute_gradients):
        return any(map(_computes_gradients_itself, optimizer.wrapped))
    return method is not v1.train.Optimizer.compute_gradients


def _check_nesting(class_name: str, optimizers: Iterable[V1Optimizer]) -> None:
    nested = [each for optimizer in optimizers for each in all_optimizers_in(optimizer)]
    for optimizer in nested:
        if isinstance(optimizer, v1.train.SyncReplicasOptimizer):
            raise ValueError(
                f"{class_name} cannot wrap a SyncReplicasOptimizer, which increments the global "
                f"step itself. Put it around: SyncReplicasOptimizer({class_name}(…), …)."
            )
        if sum(other is optimizer for other in nested) > 1:
            raise ValueError(
                f"{class_name}: {type(optimizer).__name__} {optimizer.get_name()!r} is nested in "
                "several of its inner optimizers, so it would run several times in one training "
                "step. Create a separate optimizer for each of them."
            )
