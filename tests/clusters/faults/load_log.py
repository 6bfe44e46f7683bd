"""Finds faults and figures in the logs of a training whose processes were killed."""

import collections
import json
import statistics

CHIEF = "worker 0"
KINDS = ("server", "worker", "chief")


def kind_of(name):
    """Returns the kind of the process with this name: "server", "worker" or "chief"."""
    return "server" if name.startswith("ps") else "chief" if name == CHIEF else "worker"


def read(paths, kills=()):
    """Returns the events of a training, sorted by time.

    Each event is a dict with the keys "event" (the kind of event), "time" and the keys in this
    list. All events except "killed" also have the keys "worker" (the worker's number) and "pid".

    * "trained": the worker trained on the batch at "position" in its share of the data.
    * "saved": the worker saved the checkpoint "number".
    * "restored": the worker restored the checkpoint "number", or initialized all variables if the
      number is 0. "positions" are the positions of all workers in the checkpoint. "different" are
      the names of the variables that differ from the checkpoint after the restore.
    * "killed": the process "name" was killed.

    Args:
      paths: the logs of the workers; missing files are skipped.
      kills: pairs of a time and the name of a process.
    """
    lines = [line for path in paths if path.exists() for line in path.read_text().splitlines()]
    # The last line that a killed process has written may be incomplete.
    events = [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]
    events += [{"event": "killed", "time": at, "name": name} for at, name in kills]
    return sorted(events, key=lambda event: event["time"])


def faults(events):
    """Returns a description of each fault, and the number of steps that each restore undid."""
    found, undone, newest = [], [], 0
    expected = collections.Counter()  # the next position of each worker
    kills = collections.Counter()  # the kills of each worker since its last batch
    for event in events:
        if event["event"] == "killed":
            kills[event["name"]] += 1
        elif event["event"] == "saved":
            newest = event["number"]
        elif event["event"] == "trained":
            worker, position = event["worker"], event["position"]
            # A killed worker may have trained on a batch that is not in its log.
            ahead = position - expected[worker]
            if not 0 <= ahead <= kills[f"worker {worker}"]:
                text = "worker %d trained on batch %d of its share; batch %d was expected"
                found.append(text % (worker, position, expected[worker]))
            expected[worker], kills[f"worker {worker}"] = position + 1, 0
        else:
            if event["different"]:
                names = ", ".join(event["different"])
                found.append(f"variables that differ from the checkpoint: {names}")
            if event["number"] < newest:
                found.append(f"checkpoint {event['number']} was restored instead of {newest}")
            restored = dict(enumerate(event["positions"]))
            lost = sum(max(0, expected[worker] - restored[worker]) for worker in restored)
            undone += [lost] if event["number"] else []
            expected, kills = collections.Counter(restored), collections.Counter()
    return found, undone


def seconds_until_training(events):
    """Returns, for each kind of process, the seconds from each kill until training went on.

    After the kill of a server, training goes on when any worker trains after a restore. After the
    kill of a worker or the chief, training goes on when this worker or chief trains again. Kills
    after which training did not go on are left out.
    """
    found = {kind: [] for kind in KINDS}
    for number, kill in enumerate(events):
        if kill["event"] != "killed":
            continue
        before, after, name = events[:number], events[number + 1 :], kill["name"]
        if kind_of(name) == "server":
            restores = (each["time"] for each in after if each["event"] == "restored")
            since = next(restores, float("inf"))
            goes_on = (each for each in after if each["time"] > since)
        else:
            worker = int(name.split()[1])
            old = {each["pid"] for each in before if each.get("worker") == worker}
            goes_on = (e for e in after if e.get("worker") == worker and e["pid"] not in old)
        trained = (each["time"] for each in goes_on if each["event"] == "trained")
        found[kind_of(name)] += [time - kill["time"] for time in [next(trained, None)] if time]
    return found


def figures(events):
    """Returns a list of lines with the numbers of kills, checkpoints and steps of a training."""
    count = collections.Counter(each["event"] for each in events)
    kinds = collections.Counter(kind_of(each["name"]) for each in events if "name" in each)
    kills = ", ".join(f"{kinds[kind]} of a {kind}" for kind in KINDS)
    _, undone = faults(events)
    lost = f"restores undid {sum(undone)}, at most {max(undone, default=0)} at once"
    lines = [
        f"kills: {kills}",
        f"checkpoints: {count['saved']}; restores, all compared with them: {len(undone)}",
        f"training steps: {count['trained']}; {lost}",
    ]
    for kind, seconds in seconds_until_training(events).items():
        if seconds:
            text = "seconds from the kill of a %s until training went on: median %.1f, longest %.1f"
            lines.append(text % (kind, statistics.median(seconds), max(seconds)))
    return lines
