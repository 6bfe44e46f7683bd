"""Minimizes a loss of a TF1 graph by an algorithm outside of TensorFlow, such as SciPy's.

Source: `ExternalOptimizerInterface` and `ScipyOptimizerInterface` in `tf.contrib.opt`. They feed
values of variables, which resource variables ignore; here, variables are assigned.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as np
import tensorflow as tf

from legacy_opt.core import variable_lists
from legacy_opt.core.types import Tensor, Variable

v1 = tf.compat.v1


class ExternalOptimizerInterface:
    """Base class of interfaces to algorithms outside of TensorFlow (tf.contrib.opt).

    A subclass defines `_minimize`, which returns the best vector: the values of all variables. Its
    keyword arguments are `initial_val`, `loss_grad_func` (a function from a vector to a list: the
    loss and its gradient), `equality_funcs`, `equality_grad_funcs`, `inequality_funcs`,
    `inequality_grad_funcs` (functions from a vector to a list of one value or gradient),
    `packed_bounds` (a pair for each element, or None), `step_callback` and `optimizer_kwargs`.

    Example::

        class Descent(legacy_opt.ExternalOptimizerInterface):
            def _minimize(self, initial_val, loss_grad_func, **others):
                loss, gradient = loss_grad_func(initial_val)
                return initial_val - 0.1 * gradient

    Args:
      loss: a scalar tensor.
      var_list: the variables to change; None means the trainable variables of the graph.
      equalities: a list of scalar tensors that should become 0.
      inequalities: a list of scalar tensors that should not be negative.
      var_to_bounds: a dict from variables to pairs of a lower and an upper bound: numbers, arrays
        that broadcast to the variable's shape, or None.
      **optimizer_kwargs: arguments of the algorithm.

    Raises:
      RuntimeError: no TF1 graph is being built.
      ValueError: variables differ in dtype; `var_to_bounds` has another variable; or the interface
        sets an argument in `optimizer_kwargs` itself.
    """

    _set_here: ClassVar[Sequence[str]] = ()  # names that `optimizer_kwargs` must not have

    def __init__(
        self,
        loss: Tensor,
        var_list: Optional[Iterable[Variable]] = None,
        equalities: Optional[Sequence[Tensor]] = None,
        inequalities: Optional[Sequence[Tensor]] = None,
        var_to_bounds: Optional[Dict[Any, Any]] = None,
        **optimizer_kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if tf.executing_eagerly():
            raise RuntimeError(f"{name} needs a TF1 graph: `with tf.Graph().as_default():`.")
        for each in set(self._set_here).intersection(optimizer_kwargs):
            raise ValueError(f"{name} sets {each!r} itself (bounds from var_to_bounds): omit it.")
        listed = v1.trainable_variables() if var_list is None else var_list
        self._vars = list(variable_lists.variables_in(listed, "var_list"))
        if len({each.dtype.base_dtype for each in self._vars}) != 1:
            raise ValueError(f"{name} needs variables of one dtype, got {self._vars}.")
        self._packed_bounds = None if var_to_bounds is None else self._bounds(var_to_bounds)
        self.optimizer_kwargs = optimizer_kwargs
        self._packed_var = _packed(self._vars)
        self._placeholder = v1.placeholder(self._packed_var.dtype, self._packed_var.shape)
        parts = tf.split(self._placeholder, [each.shape.num_elements() for each in self._vars])
        pairs = zip(self._vars, parts)
        self._update = tf.group(*[each.assign(tf.reshape(x, each.shape)).op for each, x in pairs])
        self._loss_and_gradient = [loss, self._gradient(loss)]
        self._constraints = {}
        for kind, tensors in ("equality", equalities or ()), ("inequality", inequalities or ()):
            self._constraints[f"{kind}_funcs"] = tensors
            self._constraints[f"{kind}_grad_funcs"] = [self._gradient(each) for each in tensors]

    def _bounds(self, var_to_bounds: Dict[Any, Any]) -> List[Tuple[Any, Any]]:
        if not set(var_to_bounds) <= set(self._vars):
            raise ValueError("var_to_bounds: each key must be one of the variables in var_list.")
        packed = []
        for variable in self._vars:
            low, high = var_to_bounds.get(variable, (-np.inf, np.inf))
            pair = [np.broadcast_to(each, variable.shape.as_list()).ravel() for each in (low, high)]
            if any(each is not None and each != each for bounds in pair for each in bounds):
                raise ValueError(f"var_to_bounds: a bound of {variable.name!r} is NaN.")
            packed += zip(*pair)
        return packed

    def _gradient(self, tensor: Tensor) -> Tensor:
        return _packed(tf.gradients(tensor, self._vars, unconnected_gradients="zero"))

    def minimize(
        self,
        session: Optional[Any] = None,
        feed_dict: Optional[Dict[Any, Any]] = None,
        fetches: Optional[Sequence[Any]] = None,
        step_callback: Optional[Callable[..., Any]] = None,
        loss_callback: Optional[Callable[..., Any]] = None,
        **run_kwargs: Any,
    ) -> None:
        """Runs the algorithm. Variables get its result, or their old values if it fails.

        `feed_dict` is fed in each evaluation. `step_callback` is called with the vector of each
        step, `loss_callback` with the values of `fetches` of each evaluation of the loss.
        `run_kwargs` are arguments of the `session.run` that assigns the result.
        """
        session = session or v1.get_default_session()
        if session is None:
            raise ValueError("There is no default Session: pass session=….")

        def function_of(tensors: Sequence[Tensor], callback: Any = None) -> Callable:
            """Returns a function from a vector to the values of `tensors`."""

            def evaluate(x: np.ndarray) -> List[Any]:
                session.run(self._update, {self._placeholder: x})
                values = session.run([*tensors, *(fetches or ())], feed_dict)
                if callback is not None:
                    callback(*values[len(tensors) :])
                return values[: len(tensors)]

            return evaluate

        constraints = self._constraints.items()
        functions = {name: [function_of([each]) for each in given] for name, given in constraints}
        initial_val = session.run(self._packed_var)
        try:
            result = self._minimize(
                initial_val=initial_val,
                loss_grad_func=function_of(self._loss_and_gradient, loss_callback),
                packed_bounds=self._packed_bounds,
                step_callback=step_callback or (lambda xk: None),
                optimizer_kwargs=self.optimizer_kwargs,
                **functions,
            )
        except BaseException:
            session.run(self._update, {self._placeholder: initial_val})
            raise
        session.run(self._update, {self._placeholder: result}, **run_kwargs)

    def _minimize(self, **arguments: Any) -> np.ndarray:
        raise NotImplementedError(f"{type(self).__name__} must define _minimize.")


def _packed(tensors: Iterable[Any]) -> Tensor:
    return tf.concat([tf.reshape(each, [-1]) for each in tensors], 0)


class ScipyOptimizerInterface(ExternalOptimizerInterface):
    """Minimizes a loss of a TF1 graph by `scipy.optimize.minimize` (tf.contrib.opt).

    Arguments are those of `ExternalOptimizerInterface` and `scipy.optimize.minimize`. The default
    method is L-BFGS-B; SLSQP takes constraints. SciPy is an extra:
    `pip install "legacy-opt[scipy]"`.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[7.0, 7.0])
            loss = tf.reduce_sum(tf.square(w))
            optimizer = legacy_opt.ScipyOptimizerInterface(loss, method="BFGS")
    """

    _set_here = "jac", "callback", "constraints", "bounds"

    def _minimize(self, **given: Any) -> np.ndarray:
        try:
            from scipy import optimize
        except ImportError as error:
            message = 'ScipyOptimizerInterface needs SciPy: pip install "legacy-opt[scipy]".'
            raise ImportError(message) from error

        def loss_and_gradient(x: np.ndarray) -> Tuple[Any, np.ndarray]:
            loss, gradient = given["loss_grad_func"](x)
            return loss, gradient.astype(np.float64)  # L-BFGS-B takes no other dtype

        constraints = []
        for kind, name in ("eq", "equality"), ("ineq", "inequality"):
            functions = zip(given[f"{name}_funcs"], given[f"{name}_grad_funcs"])
            constraints += [{"type": kind, "fun": value, "jac": grad} for value, grad in functions]
        arguments = {"method": "L-BFGS-B", "bounds": given["packed_bounds"], "jac": True}
        arguments.update(callback=given["step_callback"], constraints=constraints)
        arguments.update(given["optimizer_kwargs"])
        initial = given["initial_val"].astype(np.float64)  # SLSQP of SciPy 1.16 takes nothing else
        result = optimize.minimize(loss_and_gradient, initial, **arguments)
        v1.logging.info("%s: %s, loss %s", type(self).__name__, result.message, result.fun)
        return result["x"]
