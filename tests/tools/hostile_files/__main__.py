"""Prints a table of hostile files and commands; see `tests.tools.hostile_files`."""

import argparse
import importlib.util
import os
import sys
import tempfile
import traceback
import warnings
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

from tests.tools.hostile_files import commands, data_files, measured


def makers():
    """Returns the functions that make files, by the name of their folder."""
    found = [
        *(data_files.archives, data_files.of_proofs, data_files.records, data_files.name_maps),
        *(data_files.code, data_files.special_files),
    ]
    if importlib.util.find_spec("torch"):
        found.append(data_files.torch_files)
    if importlib.util.find_spec("tensorflow"):
        from tests.tools.hostile_files import checkpoints as made

        found += [made.indexes, made.of_format_v1, made.object_graphs, made.folders]
        found += [made.keras_files, made.graphs]
    return {each.__name__: each for each in found}


def in_child(function, *arguments):
    """Calls a function in a fork: TensorFlow may not be used before this process forks."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            warnings.simplefilter("ignore")
            with os.fdopen(writer, "w") as file:
                file.write(ascii(function(*arguments)))
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    if os.waitpid(pid, 0)[1]:
        sys.exit(f"{function.__name__} {arguments} failed")
    return eval(text)


def make_good(folder):
    """Writes the good files."""
    data_files.make_good(folder)
    if importlib.util.find_spec("tensorflow"):
        from tests.tools.hostile_files import checkpoints

        checkpoints.make_good(folder)


def make(function, folder, good, canary):
    """Returns [(name, path, commands)]."""
    return [(name, str(path), which) for name, path, which in function(folder, good, canary)]


def cells(home, only):
    """Yields (name of the file, path, command, words) of the table."""
    good, canary = home / "good", home / "canary"
    good.mkdir()
    in_child(make_good, good)
    for name, function in makers().items():
        if only and name not in only:
            continue
        folder = home / "files" / name
        folder.mkdir(parents=True)
        for file, path, which in in_child(make, function, folder, good, canary):
            for command, words in which.items():
                yield file, command, commands.words_of(words, path, good)


def main(only=(), every=1, first=0):
    """Prints the table, and returns whether no file achieved anything."""
    from legacy_opt.compat import cli

    if importlib.util.find_spec("tensorflow"):
        import tensorflow  # noqa: F401

        import legacy_opt.public  # noqa: F401
    failures, count, most = [], 0, [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        home = Path(os.path.realpath(folder))
        sys.path.insert(0, str(home / "good"))
        (home / "tmp").mkdir()
        tempfile.tempdir = os.environ["TMPDIR"] = str(home / "tmp")
        for number, (file, command, words) in enumerate(cells(home, only)):
            if number % every != first:
                continue
            found = measured.run(cli.main, words, str(home), str(home / "work"))
            problems = found.problems
            if (home / "canary").exists():
                (home / "canary").unlink()
                problems.insert(0, "EXECUTED")
            count += 1
            most = [max(most[0], found.seconds), max(most[1], found.mebibytes)]
            text = f"{file:38.60} {command:31} {found.code:4} {found.seconds:6.1f} s "
            text += f"{found.mebibytes:5.0f} MiB  "
            print(text + found.line[:160].encode("ascii", "backslashreplace").decode(), flush=True)
            if problems:
                failures.append((file, command, problems))
                print("    FOUND", "; ".join(problems), flush=True)
        tempfile.tempdir = None
    print(f"{count} runs, {len(failures)} with problems; most: {most[0]:.1f} s, {most[1]:.0f} MiB")
    for file, command, problems in failures:
        print(f"FOUND {file} × {command}: {'; '.join(problems)}")
    return not failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=(), help="names of functions that make files")
    parser.add_argument("--every", type=int, default=1, help="run only one of so many cells")
    parser.add_argument("--first", type=int, default=0, help="the number of the first cell")
    parsed = parser.parse_args()
    sys.exit(not main(parsed.only, parsed.every, parsed.first))
