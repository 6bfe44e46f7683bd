"""Watches the run calls of a script's Session, and records its training."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import sys
import threading
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional, Set

import numpy as np
import tensorflow as tf

from legacy_opt.core.shortened import quoted
from legacy_opt.recorded.proofs.proof import Proof, ProofError, Run

from .plans import Plan, Plans, read_variable
from .replayed import Options, Replayed
from .tracks import Track, unexplained
from .updates import Update, Updates

v1 = tf.compat.v1


class Recorder:
    """Records the training of a script in this process.

    Args:
      options: the `Options`.
      say: is called with what a user should know at once.
      advance: is called with 1 after each step.
      write: is called with the `Run`, once; not if there was no step.
      replayed: the `Replayed` run whose start and inputs this training gets, or None.
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
        self._plans = Plans(self._updates)
        self._lock = threading.RLock()
        self._tracks: Dict[int, Optional[Track]] = {}  # by positions of updates
        self._session: Any = None
        self._losses: List[float] = []
        self._inputs: List[Dict[str, np.ndarray]] = []
        self._first_inputs: Dict[str, np.ndarray] = {}
        self._has_inputs = options.inputs
        self._is_done = self._ends_script = self._is_main_ending = self.has_written = False

    def _leave_out(self, text: str) -> None:
        """Says what is not recorded, once."""
        if text not in self.left_out:
            self.left_out.append(text)
            self._say(text)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Scope that watches all optimizers and sessions; at its end, the run is written."""
        session_class: Any = next(each for each in v1.Session.__mro__ if "run" in vars(each))
        run, close, make = session_class.run, session_class.close, session_class.make_callable
        make_from_options = session_class._make_callable_from_options
        self._unwatched = run

        @functools.wraps(run)
        def watched_run(
            session: Any, fetches: Any, feed_dict: Any = None, *args: Any, **kwargs: Any
        ) -> Any:
            def original(fetches: Any, feeds: Any = feed_dict) -> Any:
                return run(session, fetches, feeds, *args, **kwargs)

            plan = self._next_plan(session, fetches, feed_dict or {})
            if plan is None:
                return original(fetches)
            with self._lock:
                return self._step(session, original, fetches, feed_dict or {}, plan)

        @functools.wraps(close)
        def watched_close(session: Any) -> None:
            if session is self._session:
                self._finish("the session was closed")
            close(session)

        @functools.wraps(make)
        def watched_make(session: Any, fetches: Any, feed_list: Any = None, *args: Any, **kw: Any):
            if feed_list is None and self._plans.of(session.graph, fetches, ()).updates:
                return functools.partial(session.run, fetches, None)
            return make(session, fetches, feed_list, *args, **kw)

        @functools.wraps(make_from_options)
        def watched_options(session: Any, options: Any) -> Any:
            names = [*options.fetch, *options.target]
            if not self._is_done and self._plans.of(session.graph, names, options.feed).updates:
                self._leave_out("steps of Keras: record does not see how it runs them")
                self._finish()
            return make_from_options(session, options)

        session_class.run, session_class.close = watched_run, watched_close
        session_class.make_callable = watched_make
        session_class._make_callable_from_options = watched_options
        try:
            with self._updates.watched(), _terminated():
                yield
        finally:
            session_class.run, session_class.close = run, close
            session_class.make_callable = make
            session_class._make_callable_from_options = make_from_options
            self._finish("the script ended")

    def _next_plan(self, session: Any, fetches: Any, feeds: Any) -> Optional[Plan]:
        """Returns the plan of a run call if it is a step, else None."""
        if not self._updates or (self._is_done and not self._ends_script):
            return None
        plan = self._plans.of(session.graph, fetches, feeds)
        if self._ends_script and plan.updates:  # the script, or its other threads, go on
            self._end_script()
        if session is self._session and not plan.updates:
            changed = plan.written[-1] & self._state_operations()
            if changed:
                self._leave_out(
                    f"after step {len(self._losses)}, the script changes {quoted(sorted(changed))} "
                    "without an optimizer: later steps are not recorded"
                )
                self._finish()
        elif plan.updates and self._session not in (None, session):
            self._leave_out("trainings in other sessions: only the first session is recorded")
            return None
        return plan if plan.updates else None

    def _state_operations(self) -> Set[str]:
        """Returns the names of all variables of the state, without the global step."""
        return {name for each in self._tracks.values() if each for name in each.operations}

    def _step(self, session: Any, original: Any, fetches: Any, feeds: Any, plan: Plan) -> Any:
        run = functools.partial(self._unwatched, session)
        others = [each for i, each in self._tracks.items() if each and i not in plan.updates]
        if any(plan.written[-1] & each.operations for each in others):
            self._leave_out(f"after step {len(self._losses)}, other updates change the variables")
            self._finish()
        if self._is_done:
            return original(fetches)
        number = len(self._losses) + 1
        try:
            tracks = self._tracks_of(session, plan)
            if self._replayed is not None:
                feeds = self._replayed.fed(session.graph, number, feeds)
        except ProofError as error:
            self._is_done = True
            raise SystemExit(f"legacy-opt prove replay: {error}") from error
        if not tracks:
            return original(fetches)
        inputs = plan.inputs if self._has_inputs else []
        results = original(
            {
                "theirs": fetches,
                "tracks": {i: each.fetches for i, each in tracks.items()},
                "loss": [] if plan.loss is None else [plan.loss],
                "inputs": {each.name: each for each in inputs},
            },
            feeds,
        )
        for i, each in tracks.items():
            each.step(number, results["tracks"][i])
        self._losses.append(float(np.mean(results["loss"])) if results["loss"] else np.nan)
        self._add_inputs(results["inputs"])
        if number in self._options.ends:
            self._end(run)
        self._advance(1)
        self._check_size(number)
        if number == self._options.steps:
            self._finish()
        if self._is_done and not self._options.goes_on:
            self._ends_script = True
            self._end_script()
        return results["theirs"]

    def _end_script(self) -> None:
        self._is_main_ending |= threading.current_thread() is threading.main_thread()
        if not self._is_main_ending:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)  # SystemExit would end this thread alone
        raise SystemExit(0)

    def _tracks_of(self, session: Any, plan: Plan) -> Dict[int, Track]:
        """Returns the tracks of a run call, and starts those that begin with this run."""
        run = functools.partial(self._unwatched, session)
        new = [i for i in plan.updates if i not in self._tracks]
        for i in new:
            track = self._track(self._updates[i], plan.written[i], plan.written[-1])
            self._tracks = {**self._tracks, i: track}  # other threads may read the old ones
            if track is None:
                continue
            if self._replayed is not None:
                track.made["starts"] = self._replayed.load(run, track.state)
            track.start(_values(run, track.state))
        if self._session is None and any(self._tracks.values()):
            self._session = session
            if plan.problems and self._has_inputs:
                self._leave_out(f"inputs: {'; '.join(plan.problems[:5])}")
                self._has_inputs = False
            tracks = [each for each in self._tracks.values() if each]
            known = {each.name for track in tracks for each in track.state.values()}
            with session.graph.as_default():
                found = [x for x in v1.global_variables() if x.op.name in plan.variables]
            others = {each.name: each for each in found if each.name not in known}
            self._first_inputs = _values(run, others) if self._has_inputs else {}
            if self._replayed is not None:
                self._replayed.load_others(run, others)
        return {i: each for i in plan.updates for each in [self._tracks[i]] if each is not None}

    def _track(
        self, update: Update, foreign: Collection[str], written: Collection[str]
    ) -> Optional[Track]:
        name = type(update.optimizer).__name__
        variables = {}
        for gradient, each in update.pairs:
            dtype, read = each.dtype.base_dtype.name, read_variable(gradient)
            if read in written:
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
        changed = sorted(track.operations & set(foreign))
        if changed:
            self._leave_out(f"{name}: other operations change {quoted(changed)}, too")
            return None
        if track.reason:
            self._leave_out(f"{name}: its rule, because {track.reason}")
        return track

    def _add_inputs(self, fetched: Mapping[str, Any]) -> None:
        if not self._has_inputs:
            return
        if not self._losses[1:]:
            fetched = {**fetched, **self._first_inputs}
        try:
            self._inputs.append({name: _storable(name, each) for name, each in fetched.items()})
        except ProofError as error:
            self._leave_out(f"inputs: {error}")
            self._has_inputs = False

    def _end(self, run: Any) -> None:
        tracks = {i: each for i, each in self._tracks.items() if each and not each.has_end}
        values = run({i: each.state for i, each in tracks.items()})
        for i, each in tracks.items():
            each.end({key: np.array(value) for key, value in values[i].items()})

    def _check_size(self, step: int) -> None:
        nbytes = sum(each.nbytes for each in self._tracks.values() if each)
        nbytes += sum(array.nbytes for each in self._inputs for array in each.values())
        if nbytes > self._options.limit * 1e6 and step < self._options.steps:
            self._leave_out(
                f"steps after {step}: the limit of {self._options.limit:g} MB is reached (pass "
                "--limit, or fewer --variables)"
            )
            self._finish()

    def _finish(self, why: str = "") -> None:
        """Writes what was recorded, once; `why` says what ended it early."""
        has_lock = self._lock.acquire(timeout=5)  # a step may wait for what this thread does next
        try:
            if not self._is_done:
                self._is_done = True
                self._write_run(why)
        finally:
            if has_lock:
                self._lock.release()

    def _write_run(self, why: str) -> None:
        tracks = [each for each in self._tracks.values() if each]
        if not tracks or not self._losses:
            return
        if why and len(self._losses) < self._options.steps:
            steps = f"{len(self._losses)} of {self._options.steps} steps"
            self._leave_out(f"more than {steps}: {why}")
        with contextlib.suppress(Exception):  # the session may be closed: then up to the last end
            self._end(functools.partial(self._unwatched, self._session))
        proofs: Dict[str, Proof] = {}
        for each in tracks:
            name = each.name
            number = sum(other == name or other.startswith(name + "_") for other in proofs)
            name = f"{name}_{number}" if number else name
            proofs[name] = each.proof()
            problem = ""
            if self._replayed is None and proofs[name].has_rule:
                problem = unexplained(proofs[name])
            if problem:
                self._leave_out(f"{name}: its rule, because {problem}")
                proofs[name] = each.proof(problem)
        steps = max(each.made["runs"][-1] for each in proofs.values())
        made: Dict[str, Any] = {"by": "record", "left_out": self.left_out}
        inputs = self._inputs[:steps] if self._has_inputs else ()
        self.has_written = True
        self._write(Run(proofs, self._losses[:steps], inputs, made))


@contextlib.contextmanager
def _terminated() -> Iterator[None]:
    """Scope in which SIGTERM ends the script like `sys.exit`, unless the script handles it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: Any) -> None:
        raise SystemExit(128 + number)

    before = signal.getsignal(signal.SIGTERM)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is end:
            signal.signal(signal.SIGTERM, before)


def _values(run: Any, variables: Mapping[str, Any]) -> Dict[str, np.ndarray]:
    """Returns copies of the values of variables: a result of a Session may share memory."""
    return {name: np.array(value) for name, value in run(dict(variables)).items()}


def _storable(name: str, value: Any) -> np.ndarray:
    """Returns an input as an array that a file can have."""
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        texts = [tf.compat.as_bytes(each) for each in array.ravel()]
        if any(each.endswith(b"\0") for each in texts):
            raise ProofError(f"{name!r} has texts that end with a zero byte")
        return np.array(texts, "S").reshape(array.shape)
    if array.dtype.kind not in "fiubc" or array.dtype.name == "bfloat16":
        raise ProofError(f"{name!r} is of {array.dtype.name}")
    return np.array(array)
