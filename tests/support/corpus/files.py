"""The files of the corpus: what is in the folder of a version, and their checksums."""

import hashlib
import json
import platform
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.support.paths import DATA

FOLDER = DATA / "corpus"
SUMS = "SHA256SUMS"  # of all files, for `sha256sum -c`
MADE, EXPECTED = "made.json", "expected.npz"
ANY = "any"  # the folder of files that are the same by every TensorFlow
# The instructions by which roundings of TensorFlow differ.
INSTRUCTIONS = {"avx", "avx2", "fma", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile"}
WHEN = ("saved", "later")
INDEX = "index"  # in expected.npz


class Version(NamedTuple):
    """The files of one TensorFlow.

    Attributes:
      folder: their folder.
      made: the content of made.json: "tensorflow", "python", "numpy" and "processor" tell what has
        written the files. "formats" has a pair for each format: the path of the file, or the prefix
        of the files, and the name of the state in expected.npz. Formats whose files are equal have
        the same path.
    """

    folder: Path
    made: dict

    @property
    def name(self):
        """The version of TensorFlow."""
        return self.folder.name

    @property
    def minor(self):
        """The version of TensorFlow as a tuple of two numbers."""
        return tuple(int(number) for number in self.name.split(".")[:2])

    def path(self, name):
        """Returns the path of a format's file, or the prefix of its files, which are unchanged."""
        prefix = self.made["formats"][name][0]
        assert_unchanged(self.folder.glob(prefix + "*"), self.folder.parent)
        return str(self.folder / prefix)

    def states(self, name):
        """Returns two dicts of arrays: the state in the files, and the state one step later."""
        key = self.made["formats"][name][1]
        assert_unchanged([self.folder / EXPECTED, self.folder / MADE], self.folder.parent)
        return read_states(self.folder / EXPECTED, key)


def versions(folder=FOLDER):
    """Returns the versions of the corpus, the oldest first."""
    made = [
        Version(path.parent, json.loads(path.read_text(encoding="utf-8")))
        for path in Path(folder).glob(f"*/{MADE}")
    ]
    return sorted(made, key=lambda version: version.minor)


def processor():
    """Returns the processor's architecture, and those of its instructions that change roundings."""
    flags = set()
    path = Path("/proc/cpuinfo")
    if path.exists():
        flags.update(path.read_text(encoding="utf-8", errors="replace").split())
    return " ".join([platform.machine(), *sorted(INSTRUCTIONS & flags)])


def packed(arrays):
    """Returns arrays as a text of names, dtypes and shapes, and their bytes; both as arrays."""
    names = [[name, str(a.dtype), list(a.shape)] for name, a in sorted(arrays.items())]
    content = b"".join(np.asarray(a).tobytes() for _, a in sorted(arrays.items()))
    return np.frombuffer(json.dumps(names).encode(), np.uint8), np.frombuffer(content, np.uint8)


def unpacked(names, content):
    """Returns the dict of arrays that `packed` got."""
    arrays, content, position = {}, content.tobytes(), 0
    for name, dtype, shape in json.loads(names.tobytes().decode()):
        count = int(np.prod(shape, dtype=int))
        values = np.frombuffer(content, dtype, count, position)
        position += values.nbytes
        arrays[name] = values.reshape(shape)
    assert position == len(content)
    return arrays


def write_states(path, states):
    """Writes a dict from names to pairs of dicts of arrays: the state, and one step later.

    Equal content is stored once.
    """
    stored, index = {}, {}
    for key, pair in states.items():
        for when, state in zip(WHEN, pair):
            numbers = []
            for content in packed(state):
                numbers.append(stored.setdefault(content.tobytes(), len(stored)))
            index[f"{key}/{when}"] = numbers
    arrays = {str(number): np.frombuffer(content, np.uint8) for content, number in stored.items()}
    arrays[INDEX] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    np.savez_compressed(str(path), **arrays)


def read_states(path, key):
    """Returns the pair of dicts of arrays with this name."""
    with np.load(str(path)) as file:
        index = json.loads(file[INDEX].tobytes().decode())
        return tuple(unpacked(*(file[str(n)] for n in index[f"{key}/{when}"])) for when in WHEN)


def checksum(path):
    """Returns the SHA-256 of a file."""
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def files_in(folder):
    """Returns the relative paths of all files below a folder, except the checksums."""
    found = (each for each in Path(folder).rglob("*") if each.is_file())
    names = (each.relative_to(folder).as_posix() for each in found)
    return sorted(name for name in names if name != SUMS)


def read_sums(folder=FOLDER):
    """Returns a dict from relative paths to checksums."""
    path = Path(folder) / SUMS
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    pairs = (line.split("  ", 1) for line in lines)
    return {name: value for value, name in pairs}


def write_sums(folder, sums):
    """Writes the checksums."""
    lines = [f"{value}  {name}\n" for name, value in sorted(sums.items())]
    (Path(folder) / SUMS).write_text("".join(lines), encoding="utf-8")


def assert_unchanged(paths, folder=FOLDER):
    """Asserts that there are files at these paths, and that they have their checksums."""
    sums, found = read_sums(folder), [Path(path) for path in paths]
    assert found
    for path in found:
        name = path.relative_to(folder).as_posix()
        assert checksum(path) == sums[name], f"changed: {name}"


def problems(folder=FOLDER):
    """Returns a line for each file that is missing, was changed, or has no checksum."""
    sums, there = read_sums(folder), set(files_in(folder))
    lines = [f"missing: {name}" for name in sorted(set(sums) - there)]
    lines += [f"no checksum: {name}" for name in sorted(there - set(sums))]
    changed = (n for n in sorted(there & set(sums)) if checksum(Path(folder) / n) != sums[n])
    return lines + [f"changed: {name}" for name in changed]
