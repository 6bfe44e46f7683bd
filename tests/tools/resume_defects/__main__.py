"""Prints which defects of resumed trainings `proofs.resume` finds, and its false alarms.

    python -m tests.tools.resume_defects torch|optax|keras|tensorflow [--sound N] [--seed SEED]

Each library needs its own environment. The exit code is 1 if a defect is not found, a cause is
wrong, or a sound resume gives an alarm.
"""

import argparse
import importlib
import random
import sys
import tempfile
import time

from legacy_opt import proofs
from tests.tools import resume_defects


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("library", choices=["torch", "optax", "keras", "tensorflow"])
    parser.add_argument("--sound", type=int, default=0, metavar="N", help="sound resumes")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    arguments = parser.parse_args()
    print(f"{arguments.library}, seed {arguments.seed}")
    module = importlib.import_module(f"tests.tools.resume_defects.in_{arguments.library}")
    with tempfile.TemporaryDirectory() as folder:
        failures = show(module.defects(folder, arguments.seed)) + sound(module, folder, arguments)
    sys.exit(bool(failures))


def show(cases):
    """Prints a table of defects, and returns the number of failures."""
    found = [(case, *resume_defects.judge(case)) for case in cases]
    for case, first, is_place, grade in found:
        text = first.text if first else "no finding"
        print(f"{case.name:<44} {'found' if is_place else 'MISSED':<7} {grade:<6} {text}")
    places = sum(is_place for _, _, is_place, _ in found)
    grades = [grade for *_, grade in found]
    rights, wrongs = grades.count("right"), grades.count("wrong")
    print(f"of {len(found)} defects: place {places}, cause {rights}, wrong cause {wrongs}")
    return len(found) - places + wrongs


def sound(module, folder, arguments):
    """Prints the alarms of sound resumes, and returns their number."""
    alarms = 0
    for i in range(arguments.sound):
        name, before, after = module.sound(folder, random.Random(arguments.seed + i), i)
        resumed = proofs.resume(before, after)
        if resumed.name != proofs.EQUAL:
            alarms += 1
            print(f"ALARM {i} {name}: {resumed.findings[:3]}")
    print(f"of {arguments.sound} sound resumes: alarms {alarms}")
    return alarms


main()
