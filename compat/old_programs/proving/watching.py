"""Watches the run calls of a script's Session, and records its training."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sys
import threading
from typing import Any, Callable, Collection, Dict, Iterator, List, Mapping, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.core.shortened import quoted
from legacy_opt.recorded.proofs.proof import Proof, ProofError, Run

from .plans import Plan, Plans, read_variable
from .replayed import Options, Replayed
from .tracks import Track, explained
from .updates import Update, Updates, replace

v1 = tf.compat.v1


class Recorder:
    """Records the training of a script in this process, and ends it after the last step.

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
            replace(stack, session_class, "run", self._run)
            replace(stack, session_class, "close", self._close)
            replace(stack, session_class, "make_callable", self._make_callable)
            self._updates.watch(stack)
            yield

    def _close(self, method: Any, session: Any) -> None:
        if session is self._session:
            self._finish("the session was closed")
        method(session)

    def _make_callable(
        self, method: Any, session: Any, fetches: Any, feed_list: Any = None, *args: Any, **kw: Any
    ) -> Any:
        if feed_list is None and self._plans.of(session.graph, fetches, ()).updates:
            return functools.partial(session.run, fetches, None)
        return method(session, fetches, feed_list, *args, **kw)

    def _run(
        self, method: Any, session: Any, fetches: Any, feed_dict: Any = None, *args: Any, **kw: Any
    ) -> Any:
        run = lambda fetches, feeds: method(session, fetches, feeds, *args, **kw)  # noqa: E731
        plan = self._plans.of(session.graph, fetches, feed_dict or ())
        if session is self._session:
            self._find_changes(plan)
        elif plan.updates and self._session is not None and not self._is_done:
            self._leave_out("trainings in other sessions: only the first session is recorded")
            return run(fetches, feed_dict)
        if not plan.updates:
            return run(fetches, feed_dict)
        with self._lock:
            results = None
            if not self._is_done:
                results = self._step(session, run, fetches, feed_dict or {}, plan)
            if self._is_done:
                _end_script()
            return results

    def _find_changes(self, plan: Plan) -> None:
        """Ends the recording if a run call changes variables without their optimizer."""
        others = [each for i, each in self._tracks.items() if each and i not in plan.updates]
        changed = {name for each in others for name in each.operations & {*plan.written[-1]}}
        if changed and not self._is_done:
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
                feeds = self._replayed.fed(session.graph, number, feeds)
        except ProofError as error:
            self._is_done = True
            raise SystemExit(f"legacy-opt prove replay: {error}") from error
        if not tracks:
            return run(fetches, feeds)
        inputs = plan.inputs if self._has_inputs else []
        results = run(
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
        self._add_inputs({**results["inputs"], **self._first_inputs})
        self._first_inputs = {}
        if number in self._options.ends:
            self._end()
        self._advance(1)
        nbytes = self._nbytes + sum(each.nbytes for each in self._tracks.values() if each)
        if number == self._options.steps:
            self._finish()
        elif nbytes > self._options.limit * 1e6:
            self._leave_out(
                f"steps after {number}: the limit of {self._options.limit:g} MB is reached (pass "
                "--limit, or fewer --variables)"
            )
            self._finish()
        return results["theirs"]

    def _tracks_of(self, session: Any, plan: Plan) -> Dict[int, Track]:
        """Returns the tracks of a run call, and starts those that begin with this run."""
        for i in plan.updates:
            if i not in self._tracks:
                track = self._track(self._updates[i], plan.written[i], plan.written[-1])
                self._tracks = {**self._tracks, i: track}  # other threads may read the old ones
                if track and self._replayed:
                    run = functools.partial(self._unwatched, session)
                    track.made["starts"] = self._replayed.load(run, track.state)
                if track:
                    track.start(self._values(session, track.state))
        if self._session is None and any(self._tracks.values()):
            self._session = session
            if plan.problems and self._has_inputs:
                self._leave_out(f"inputs: {'; '.join(plan.problems[:5])}")
                self._has_inputs = False
            self._start_others(session, plan)
        return {i: each for i, each in self._tracks.items() if each and i in plan.updates}

    def _start_others(self, session: Any, plan: Plan) -> None:
        """Records the first values of the variables that no optimizer has."""
        tracks = [each for each in self._tracks.values() if each]
        known = {each.name for track in tracks for each in track.state.values()}
        with session.graph.as_default():
            found = [x for x in v1.global_variables() if x.op.name in plan.variables]
        others = {each.name: each for each in found if each.name not in known}
        if self._has_inputs:
            self._first_inputs = self._values(session, others)
        if self._replayed:
            self._replayed.load_others(functools.partial(self._unwatched, session), others)

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
        changed = sorted(track.operations & {*foreign})
        if changed:
            self._leave_out(f"{name}: other operations change {quoted(changed)}, too")
            return None
        if track.reason:
            self._leave_out(f"{name}: its rule, because {track.reason}")
        return track

    def _values(self, session: Any, variables: Any) -> Any:
        """Returns copies of variables: what a Session returns may share their memory."""
        return {name: np.array(x) for name, x in self._unwatched(session, dict(variables)).items()}

    def _add_inputs(self, fetched: Mapping[str, Any]) -> None:
        if not self._has_inputs:
            return
        try:
            inputs = {name: _storable(name, each) for name, each in fetched.items()}
        except ProofError as error:
            self._leave_out(f"inputs: {error}")
            self._has_inputs = False
        else:
            self._inputs.append(inputs)
            self._nbytes += sum(each.nbytes for each in inputs.values())

    def _end(self) -> None:
        """Adds the states after the last step, which one run fetches, to the tracks."""
        tracks = [each for each in self._tracks.values() if each and not each.has_end]
        values = self._unwatched(self._session, [each.state for each in tracks])
        for track, state in zip(tracks, values):
            track.end({key: np.array(value) for key, value in state.items()})

    def _finish(self, why: str = "") -> None:
        """Writes what was recorded, once; `why` says what ended it early."""
        with contextlib.ExitStack() as stack:
            if self._lock.acquire(timeout=5):  # a step may wait for what this thread does next
                stack.callback(self._lock.release)
            if not self._is_done:
                self._is_done = True
                self._write_run(why)

    def _write_run(self, why: str) -> None:
        tracks = [each for each in self._tracks.values() if each]
        if not tracks or not self._losses:
            return
        if why and len(self._losses) < self._options.steps:
            steps = f"{len(self._losses)} of {self._options.steps} steps"
            self._leave_out(f"more than {steps}: {why}")
        with contextlib.suppress(Exception):  # the session may be closed: then up to the last end
            self._end()
        proofs: Dict[str, Proof] = {}
        for each in tracks:
            names = [each.name, *(f"{each.name}_{i}" for i in range(1, len(tracks)))]
            name = next(x for x in names if x not in proofs)
            proofs[name], problem = each.proof(), ""
            if not self._replayed:
                proofs[name], problem = explained(proofs[name])
            if problem:
                self._leave_out(f"{name}: its rule, because {problem}")
        steps = max(each.made["runs"][-1] for each in proofs.values())
        made: Dict[str, Any] = {"by": "record", "left_out": self.left_out}
        inputs = self._inputs[:steps] if self._has_inputs else ()
        self.has_written = True
        self._write(Run(proofs, self._losses[:steps], inputs, made))


def _end_script() -> None:
    if threading.current_thread() is not threading.main_thread():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # SystemExit would end this thread alone
    raise SystemExit(0)


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
