"""Watches the run calls of a script's Session, and records its training."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Set

import numpy as np
import tensorflow as tf

from legacy_opt.core.shortened import quoted
from legacy_opt.recorded.proofs.proof import Proof, ProofError, Run

from .tracks import Track, explained
from .training_replay import Options, Replayed
from .updates import Plan, Updates, read_variable, replace

v1 = tf.compat.v1


class Recorder:
    """Records the training of a script in this process, and ends it after the last step.

    It calls `say` with what a user should know at once, `advance` with 1 after each step, and
    `write` with the `Run`, once. The training gets the start and the inputs of a `replayed` run.
    """

    def __init__(
        self,
        options: Options,
        say: Callable[[str], Any],
        advance: Callable[[int], Any],
        write: Callable[[Run], Any],
        replayed: Optional[Replayed] = None,
    ) -> None:
        self._options, self._say, self._advance, self._write = options, say, advance, write
        self._replayed = replayed
        self.left_out: List[str] = []
        self._updates = Updates(self._leave_out)
        self._lock = threading.RLock()
        self._tracks: Dict[int, Track] = {}  # by positions of updates
        self._seen: Set[int] = set()  # positions, also of updates that are not recorded
        self._session: Any = None
        self._losses: List[float] = []
        self._inputs: List[Dict[str, np.ndarray]] = []
        self._first_inputs: Dict[str, np.ndarray] = {}
        self._nbytes = 0  # of inputs
        self._has_inputs = options.inputs
        self._is_done = self.has_written = False

    def _leave_out(self, text: str) -> None:
        """Says what is not recorded, once."""
        if text not in self.left_out:
            self.left_out.append(text)
            self._say(text)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Scope that watches all optimizers and sessions; at its end, the run is written."""
        session_class: Any = next(each for each in v1.Session.__mro__ if "run" in vars(each))
        self._unwatched = session_class.run
        with contextlib.ExitStack() as stack:
            stack.callback(self._finish, "the script ended")
            replace(stack, session_class, run=self._run, close=self._close)
            for name in "make_callable", "_make_callable_from_options":  # the latter is for Keras
                replace(stack, session_class, **{name: self._make_callable})
            self._updates.watch(stack)
            yield

    def _close(self, method: Any, session: Any) -> None:
        if session is self._session:
            self._finish("the session was closed")
        method(session)

    def _make_callable(
        self, method: Any, session: Any, fetches: Any, *args: Any, **kwargs: Any
    ) -> Any:
        names = [*fetches.fetch, *fetches.target] if hasattr(fetches, "target") else fetches
        if not self._is_done and self._updates.plan_of(session.graph, names, ()).updates:
            self._leave_out("steps in callables, such as those of Keras' fit")
            self._finish()
        return method(session, fetches, *args, **kwargs)

    def _run(
        self, method: Any, session: Any, fetches: Any, feed_dict: Any = None, *args: Any, **kw: Any
    ) -> Any:
        run = lambda fetches, feeds: method(session, fetches, feeds, *args, **kw)  # noqa: E731
        plan = self._updates.plan_of(session.graph, fetches, feed_dict or ())
        is_other = self._session not in (None, session) and not self._is_done
        if plan.updates and is_other:
            self._leave_out("trainings in other sessions: only the first session is recorded")
        if session is self._session and not self._is_done:
            self._find_changes(plan)
        if is_other or not plan.updates:
            return run(fetches, feed_dict)
        with self._lock:
            done = None if self._is_done else self._step(session, run, fetches, feed_dict, plan)
            if self._is_done:
                raise SystemExit(0)
            return done

    def _find_changes(self, plan: Plan) -> None:
        """Ends the recording if a run call changes variables without their optimizer."""
        written, tracks = plan.written, self._tracks.items()
        changed = set().union(*(x.operations & written.get(i, written[-1]) for i, x in tracks))
        if changed:
            self._leave_out(
                f"after step {len(self._losses)}, the script changes {quoted(sorted(changed))} "
                "without their optimizer: later steps are not recorded"
            )
            self._finish()

    def _step(self, session: Any, run: Any, fetches: Any, feeds: Any, plan: Plan) -> Any:
        number = len(self._losses) + 1
        try:
            tracks = self._tracks_of(session, plan)
            if tracks and self._replayed:
                feeds = self._replayed.fed(session.graph, number, feeds or {})
        except ProofError as error:
            self._is_done = True
            raise SystemExit(f"legacy-opt prove replay: {error}") from error
        if not tracks:
            return run(fetches, feeds)
        inputs = {each.name: each for each in plan.inputs if self._has_inputs}
        all_fetches = [fetches, [each.fetches for each in tracks], plan.losses, inputs]
        theirs, values, losses, inputs = run(all_fetches, feeds)
        for track, value in zip(tracks, values):
            track.step(number, value)
        self._losses.append(float(np.mean(losses)) if losses else np.nan)
        self._add_inputs({**inputs, **self._first_inputs})
        self._first_inputs = {}
        if number in self._options.ends:
            self._end()
        self._advance(1)
        nbytes = self._nbytes + sum(each.nbytes for each in self._tracks.values())
        if number == self._options.steps:
            self._finish()
        elif nbytes > self._options.limit * 1e6:
            self._leave_out(
                f"steps after {number}: the limit of {self._options.limit:g} MB is reached (pass "
                "--limit, or fewer --variables)"
            )
            self._finish()
        return theirs

    def _tracks_of(self, session: Any, plan: Plan) -> List[Track]:
        """Returns the tracks of a run call, and starts those that begin with this run."""
        run = functools.partial(self._unwatched, session)
        for i in [x for x in plan.updates if x not in self._seen]:
            self._seen.add(i)
            track = self._track(plan, i)
            if track:
                if self._replayed:
                    track.made["starts"] = self._replayed.load(run, track.state)
                track.start(_values(run, track.state))
                self._tracks = {**self._tracks, i: track}  # other threads may read the old ones
        if self._session is None and self._tracks:
            self._session = session
            if plan.problems and self._has_inputs:
                self._leave_out(f"inputs: {'; '.join(plan.problems[:5])}")
                self._has_inputs = False
            known = {x.name for each in self._tracks.values() for x in each.state.values()}
            found = session.graph.get_collection(v1.GraphKeys.GLOBAL_VARIABLES)
            found = [x for x in found if x.op.name in plan.variables]
            others = {x.name: x for x in found if x.name not in known}
            self._first_inputs = _values(run, others) if self._has_inputs else {}
            if self._replayed:
                self._replayed.load_others(run, others)
        return [each for i, each in self._tracks.items() if i in plan.updates]

    def _track(self, plan: Plan, i: int) -> Optional[Track]:
        """Returns the track of an update, or None if this cannot be recorded."""
        update, variables = plan.updates[i], {}
        name = type(update.optimizer).__name__
        for gradient, each in update.pairs:
            dtype, read = each.dtype.base_dtype.name, read_variable(gradient)
            if read in plan.written[-1]:
                self._leave_out(
                    f"{name}: a gradient is the variable {read!r}, which each step changes"
                )
                return None
            if dtype != "float32" or not each.shape.is_fully_defined():
                what = f"{dtype}, of shape {each.shape}"
                self._leave_out(f"{name}: {each.op.name!r} is not recorded, because it is {what}")
            elif re.search(self._options.variables, each.op.name):
                variables[each.op.name] = each
            else:
                self._leave_out(f"variables that do not match {self._options.variables!r}")
        if not variables:
            return None
        record = self._replayed and self._replayed.proof_of(variables).record
        track = Track(update, variables, record)
        changed = sorted(track.operations & plan.written[i])
        if changed:
            self._leave_out(f"{name}: other operations change {quoted(changed)}, too")
            return None
        scalars = {n: read_variable(x, of_refs=True) for n, x in track.fetches[1].items()}
        for scalar, read in scalars.items():
            if read in plan.written[-1]:  # what is fetched may be its value after the update
                track.reason = f"{scalar} is the variable {read!r}, which each step changes"
        if track.reason:
            self._leave_out(f"{name}: its rule, because {track.reason}")
        return track

    def _add_inputs(self, fetched: Mapping[str, Any]) -> None:
        try:
            inputs = {name: _storable(name, each) for name, each in fetched.items()}
            self._nbytes += sum(each.nbytes for each in inputs.values())
            self._inputs.append(inputs)
        except ProofError as error:
            self._leave_out(f"inputs: {error}")
            self._has_inputs = False

    def _end(self) -> None:
        run = functools.partial(self._unwatched, self._session)
        for each in [x for x in self._tracks.values() if x.has_steps]:
            each.end(_values(run, each.state))

    def _finish(self, why: str = "") -> None:
        """Writes what was recorded, once; `why` says what ended it early."""
        with contextlib.ExitStack() as stack:
            if self._lock.acquire(timeout=5):  # a step may wait for what this thread does next
                stack.callback(self._lock.release)
            if not self._is_done:
                self._is_done = True
                self._write_run(why)

    def _write_run(self, why: str) -> None:
        if not self._losses:
            return
        if why and len(self._losses) < self._options.steps:
            steps = f"{len(self._losses)} of {self._options.steps} steps"
            self._leave_out(f"more than {steps}: {why}")
        with contextlib.suppress(Exception):  # the session may be closed: then up to the last end
            self._end()
        proofs: Dict[str, Proof] = {}
        for each in [x for x in self._tracks.values() if x.has_steps]:
            proof, name = each.proof(), each.name
            if not self._replayed and not each.reason:
                proof, problem = explained(proof)
                if problem:
                    self._leave_out(f"{name}: its rule, because {problem}")
            while name in proofs:
                name += "_1"
            proofs[name] = proof
        steps = max(each.made["runs"][-1] for each in proofs.values())
        made: Dict[str, Any] = {"by": "record", "left_out": self.left_out}
        if self._replayed:
            made["fed_otherwise"] = sorted(self._replayed.fed_otherwise)
        inputs = self._inputs[:steps] if self._has_inputs else ()
        self.has_written = True
        self._write(Run(proofs, self._losses[:steps], inputs, made))


def _values(run: Any, variables: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    """Returns copies of variables: what a Session returns may share their memory."""
    return {name: np.array(value) for name, value in run(dict(variables)).items()}


def _storable(name: str, value: Any) -> np.ndarray:
    """Returns an input as an array that a file can have."""
    array = np.array(value)
    if array.dtype.kind in "OSU":
        texts = [tf.compat.as_bytes(each) for each in array.ravel()]
        if any(each.endswith(b"\0") for each in texts):
            raise ProofError(f"{name!r} has texts that end with a zero byte")
        return np.array(texts, "S").reshape(array.shape)
    if array.dtype.kind not in "fiubc" or array.dtype.name == "bfloat16":
        raise ProofError(f"{name!r} is of {array.dtype.name}")
    return array
