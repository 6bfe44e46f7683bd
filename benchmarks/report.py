"""Formats the results as tables and as JSON."""

import datetime
import json
import os
import platform
from typing import Any, NamedTuple


class Result(NamedTuple):
    """The result of one comparison.

    Attributes:
      workload: the workload's name.
      variables: "ref" or "resource".
      optimizer: the optimizer's name.
      compared_with: the name of the optimizer that `optimizer` is compared with. If `optimizer` is
        compared with its own step time on another workload, a text such as "itself on W3".
      milliseconds: the `Spread` of the time of a step.
      ratio: the `Spread` of (step time of `optimizer`) / (step time of `compared_with`).
      goal: the largest accepted ratio; None if there is no goal.
      way: how the steps were run, such as "Session" or "fit, Keras 3".
      family: the heading of the table that shows the result.
    """

    workload: str
    variables: str
    optimizer: str
    compared_with: str
    milliseconds: Any
    ratio: Any
    goal: Any = None
    way: str = "Session"
    family: str = "Through the bridge to Keras"

    @property
    def hit(self):
        """Whether the median ratio is at most the goal; None if there is no goal."""
        return None if self.goal is None else self.ratio.median <= self.goal

    def as_json(self):
        """Returns a dict of plain values."""
        values = dict(self._asdict(), hit=self.hit)
        values.update(milliseconds=self.milliseconds._asdict(), ratio=self.ratio._asdict())
        return dict(values)


class State(NamedTuple):
    """The memory of an optimizer's slots on a workload.

    `slots` is a dict from slot name to the size in bytes, summed over all variables.
    """

    workload: str
    optimizer: str
    slots: dict

    def as_json(self):
        """Returns a dict of plain values."""
        return dict(self._asdict(), total=sum(self.slots.values()))


def without_repeats(states):
    """Returns a list of `states` without duplicates, in the same order."""
    return [state for i, state in enumerate(states) if state not in states[:i]]


def environment(**versions):
    """Returns a dict of facts that the results depend on, with the given versions of libraries."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        **versions,
        "python": platform.python_version(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
    }


def _cpu_model():
    try:
        with open("/proc/cpuinfo") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def results_tables(results):
    """Returns the results as text, with a table for each family."""
    families = list(dict.fromkeys(result.family for result in results))
    tables = (
        family + "\n" + results_table([result for result in results if result.family == family])
        for family in families
    )
    return "\n\n".join(tables)


def results_table(results):
    """Returns the results as one table."""
    rows = [
        [
            "",
            "variables",
            "way",
            "optimizer",
            "ms/step",
            "ratio",
            "quartiles",
            "goal",
            "",
            "compared with",
        ]
    ]
    for result in results:
        ratio = result.ratio
        rows.append(
            [
                result.workload,
                result.variables,
                result.way,
                result.optimizer,
                f"{result.milliseconds.median:.3f}",
                f"{ratio.median:.2f}",
                f"{ratio.lower:.2f}-{ratio.upper:.2f}",
                "" if result.goal is None else f"<= {result.goal:.2f}",
                {None: "", True: "hit", False: "MISS"}[result.hit],
                result.compared_with,
            ]
        )
    return _columns(rows)


def goals_line(results):
    """Returns a text: the number of goals that were hit, then a line for each missed goal."""
    judged = [result for result in results if result.goal is not None]
    missed = [result for result in judged if not result.hit]
    line = f"{len(judged) - len(missed)} of {len(judged)} goals hit{'. Missed:' if missed else '.'}"
    return "\n".join([line] + [_miss(result) for result in missed])


def _miss(result):
    words = [result.workload, result.variables, result.optimizer]
    if result.way != "Session":
        words.insert(1, result.way)
    if result.compared_with.startswith("itself"):
        words.append("to " + result.compared_with)
    return f"  {' '.join(words)}: {result.ratio.median:.2f} > {result.goal:.2f}"


def states_table(states):
    """Returns a table of the slots' memory, with a row per optimizer and a column per workload."""
    names = list(dict.fromkeys(state.workload for state in states))
    rows = [["slots, in MB"] + names + ["slots on " + names[-1]]]
    for optimizer in dict.fromkeys(state.optimizer for state in states):
        sizes = {state.workload: state.slots for state in states if state.optimizer == optimizer}
        totals = [_mb(sum(sizes[name].values())) if name in sizes else "" for name in names]
        slots = sizes.get(names[-1], {})
        parts = ", ".join(f"{name} {_mb(size)}" for name, size in slots.items())
        rows.append([optimizer] + totals + [parts])
    return _columns(rows)


def _mb(size):
    return f"{size / 1e6:.1f}"


def _columns(rows):
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    )


def save_json(path, results, states, facts):
    """Writes the report to `path` as JSON. An existing file is replaced atomically."""
    report = {
        "environment": facts,
        "results": [result.as_json() for result in results],
        "state": [state.as_json() for state in states],
    }
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "w") as file:
        json.dump(report, file, indent=1)
        file.write("\n")
    os.replace(temporary, path)
