"""Several optimizers in one training: each variable belongs to one of them."""

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
from legacy_opt.wrappers.base import OptimizerWrapper, parts_of_a_step, whole_step
from legacy_opt.wrappers.multi_optimizer_routes import (
    Collection,
    Route,
    Which,
    check_taken,
    make_routes,
)
from legacy_opt.wrappers.nested_optimizers import all_held_by

v1 = tf.compat.v1


class MultiOptimizer(OptimizerWrapper):
    """Trains different variables with different optimizers, as one optimizer.

    For the wide & deep model::

        optimizer = MultiOptimizer(
            [
                (tf.compat.v1.train.FtrlOptimizer(0.1), "wide"),
                (legacy_opt.AdagradDecayOptimizer(0.1, global_step), "deep/embeddings"),
            ],
            default=legacy_opt.LazyAdamOptimizer(0.001),
        )
        train_op = optimizer.minimize(loss, global_step=global_step)

    There is one backward pass for all variables. All optimizers see the same global step, which
    then advances by one, after all updates. Every variable with a gradient must go to exactly one
    optimizer; the others are named in the error. An optimizer none of whose variables has a
    gradient is left alone in that step.

    Each optimizer trains as it would by itself with these gradients. Its slots, and variables that
    several share such as Adam's powers of beta, have the names that they have without this class,
    where `apply_gradients` of one optimizer after the other is called in the order of the routes: a
    checkpoint of the one restores into the other. (The powers of a second Adam are `beta1_power_1`
    and `beta2_power_1`: the order of the routes is part of a checkpoint's names.)

    An optimizer inside with a `compute_gradients` of its own (one that scales the loss, or sums
    over workers) is asked for the gradients of its variables by itself, which is another backward
    pass: where it can be around this one, as `SyncReplicasOptimizer` must be, it is better there.

    Args:
      routes: a list of pairs (optimizer, which). `which` is one of

        * a string: a regular expression that the variable's name must begin with, as `scope` of
          `tf.compat.v1.get_collection`: "wide" means `wide/…` and `wide_dense:0`;
        * a variable, or a list or tuple of variables (partitioned ones mean their parts);
        * `MultiOptimizer.collection("name")`: the variables that are in the graph's collection of
          that name when gradients are applied;
        * a function that is called with a variable, and tells whether it belongs there.

        An optimizer may have several routes.
      default: the optimizer of all variables that no route takes, or None.
      name: the name of the operation that is the whole step.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: there is no route; a `which` is empty or no regular expression; an optimizer is in
        several wrappers inside, whose steps would both advance its powers of beta; or is a
        `SyncReplicasOptimizer`.
    """

    def __init__(
        self,
        routes: Sequence[Tuple[V1Optimizer, Which]],
        default: Optional[V1Optimizer] = None,
        name: str = "MultiOptimizer",
    ) -> None:
        holder = type(self).__name__
        self._routes = make_routes(holder, routes)
        self._default = () if default is None else (Route(default, None),)
        # One that has several routes is held once: it applies all its gradients in one call.
        held = {id(route.optimizer): route.optimizer for route in self._routes + self._default}
        super().__init__(held.values(), name=name)
        _refuse_what_must_be_outside(holder, self._wrapped)

    @staticmethod
    def collection(name: str) -> Collection:
        """Returns a `which` for the variables of a graph's collection."""
        return Collection(argument_checks.text("name", name))

    def get_config(self) -> Dict[str, Any]:
        """Returns what it is made of, for `from_config`: saved models need it (`to_keras`).

        Raises:
          ValueError: a route is no regular expression.
        """
        numbers = {id(inner): number for number, inner in enumerate(self._wrapped)}
        for route in self._routes:
            if not isinstance(route.which, str):
                raise ValueError(
                    f"{type(self).__name__} cannot be saved: its route {route} is no regular "
                    "expression, as a file can hold it. Route by names, or save the model "
                    "without its optimizer and make that anew."
                )
        return {
            "optimizers": list(self._wrapped),
            "routes": [[numbers[id(route.optimizer)], route.which] for route in self._routes],
            "default": numbers[id(self._default[0].optimizer)] if self._default else None,
            "name": self._name,
        }

    @classmethod
    def from_config(cls: Type[Self], config: Mapping[str, Any]) -> Self:
        """Makes what `get_config` described."""
        optimizers = config["optimizers"]
        routes = [(optimizers[number], which) for number, which in config["routes"]]
        default = config.get("default")
        default = None if default is None else optimizers[default]
        return cls(routes, default=default, name=config["name"])

    def route(self, var_list: Iterable[Variable]) -> List[Tuple[V1Optimizer, List[Variable]]]:
        """Tells which optimizer trains which of some variables.

        Args:
          var_list: a list of variables.

        Returns:
          A list of pairs (optimizer, list of its variables): each optimizer once, in the order of
          the routes.

        Raises:
          ValueError: a variable goes to no optimizer or to several, or is given twice.
        """
        variables = list(variables_in([var_list], "var_list"))
        taken = self._taken(variables)
        check_taken(type(self).__name__, self._routes, taken)
        return self._divided(taken, variables)

    def compute_gradients(
        self, loss: Loss, var_list: Optional[Iterable[Variable]] = None, *args: Any, **kwargs: Any
    ) -> List[GradAndVar]:
        """See `tf.compat.v1.train.Optimizer.compute_gradients`.

        Raises:
          ValueError: the loss is a function, an optimizer inside computes its gradients itself, and
            no `var_list` tells of which variables.
        """
        gradient_pairs.check_variables(type(self).__name__, var_list)
        compute = super(OptimizerWrapper, self).compute_gradients
        apart = {id(inner): [] for inner in self._wrapped if _computes_gradients_itself(inner)}
        if not apart:
            return compute(loss, var_list, *args, **kwargs)
        if var_list is None:
            if callable(loss):
                raise ValueError(
                    f"{type(self).__name__}.compute_gradients needs var_list=…: an optimizer "
                    "inside computes the gradients of its variables itself."
                )
            var_list = v1.trainable_variables()
        variables, together = list(variables_in([var_list], "var_list")), []
        for variable, routes in self._taken(variables):
            apart.get(id(routes[0].optimizer) if routes else None, together).append(variable)
        found = compute(loss, together, *args, **kwargs) if together or not variables else []
        for inner in self._wrapped:
            if apart.get(id(inner)):
                found += inner.compute_gradients(loss, apart[id(inner)], *args, **kwargs)
        places = {id(variable): place for place, variable in enumerate(variables)}
        return sorted(found, key=lambda pair: places.get(id(pair[1]), len(places)))

    def apply_gradients(
        self,
        grads_and_vars: GradsAndVars,
        global_step: Optional[Variable] = None,
        name: Optional[str] = None,
    ) -> Optional[Operation]:
        """See `tf.compat.v1.train.Optimizer.apply_gradients`.

        Raises:
          TypeError: see `legacy_opt.RuleOptimizer.apply_gradients`; or `global_step` is no
            variable.
          ValueError: a variable with a gradient goes to no optimizer or to several, or is given
            twice; or no variable has a gradient.
        """
        holder = type(self).__name__
        with gradient_pairs.given(holder, grads_and_vars) as given:
            some_gradients(holder, given)
            taken = self._taken([variable for _, variable in given])
            trained = [each for each, (gradient, _) in zip(taken, given) if gradient is not None]
            check_taken(holder, self._routes, trained)
            parts = []
            with parts_of_a_step(global_step):
                for inner, share in self._divided(taken, given):
                    if any(gradient is not None for gradient, _ in share):
                        parts.append(inner.apply_gradients(share))
            return whole_step(parts, global_step, name or self.get_name())

    def variable_name(self, variable: Variable) -> str:
        """Returns the name that routes by name go by; a bridge may know a better one."""
        return versions.distributed_variable(variable).name  # the same in all replicas

    def _create_slots(self, var_list):  # of all variables, or of some
        for inner, variables in self._divided(self.routes_of(var_list), var_list):
            if variables:
                inner._create_slots(variables)

    def routes_of(self, variables: Iterable[Variable]) -> List[Tuple[Variable, List[Route]]]:
        """Returns pairs (variable, the routes that take it)."""
        selections = [(route, route.selection(self.variable_name)) for route in self._routes]
        taken = []
        for variable in variables:
            routes = [route for route, selects in selections if selects(variable)]
            taken.append((variable, routes or list(self._default)))
        return taken

    def _taken(self, variables):
        """Does the same, and warns of routes that take nothing where `default` would hide it."""
        taken = self.routes_of(variables)
        used = {id(route) for _, routes in taken for route in routes}
        idle = [str(route) for route in self._routes if id(route) not in used]
        if idle and self._default:
            warn(
                f"{type(self).__name__}: nothing goes to {', '.join(idle)}; what no route "
                f"takes goes to {self._default[0]}.",
                UserWarning,
            )
        return taken

    def _divided(self, taken, items):
        """Divides items, each of which stands for a variable, among the optimizers.

        Args:
          taken: what `_taken` returned of the variables.
          items: the items, in the same order; those of strays are left out.

        Returns:
          A list of pairs (optimizer, its items).
        """
        shares = {id(inner): [] for inner in self._wrapped}
        for (_, routes), item in zip(taken, items):
            optimizers = {id(route.optimizer) for route in routes}
            if len(optimizers) == 1:
                shares[optimizers.pop()].append(item)
        return [(inner, shares[id(inner)]) for inner in self._wrapped]


def _computes_gradients_itself(optimizer):
    """Whether an optimizer has another `compute_gradients` than TensorFlow's."""
    method = type(optimizer).compute_gradients
    if method in (OptimizerWrapper.compute_gradients, MultiOptimizer.compute_gradients):
        return any(map(_computes_gradients_itself, optimizer.wrapped))
    return method is not v1.train.Optimizer.compute_gradients


def _refuse_what_must_be_outside(holder, optimizers):
    """Refuses what would do in each of several parts of a step what is to be done once a step."""
    everything = [each for optimizer in optimizers for each in all_held_by(optimizer)]
    for optimizer in everything:
        if isinstance(optimizer, v1.train.SyncReplicasOptimizer):
            raise ValueError(
                f"{holder} cannot hold a SyncReplicasOptimizer, which advances the global "
                f"step itself. Put it around: SyncReplicasOptimizer({holder}(…), …)."
            )
        if sum(other is optimizer for other in everything) > 1:
            raise ValueError(
                f"{holder}: {type(optimizer).__name__} {optimizer.get_name()!r} is inside of "
                "several of its optimizers, and would make several steps at once. Make one "
                "for each."
            )
