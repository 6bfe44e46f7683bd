"""Writes the corpus' files of the installed TensorFlow: `make corpus TF=2.7.4 PYTHON=3.8`.

    python -m tests.tools.corpus [FOLDER]

A file that is there is never written again: the corpus shows that files stay readable for ever.
"""

import json
import os
import platform
import shutil
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from tests.support.corpus import estimators, files, graphs, models, rules
from tests.support.keras.keras_apis import APIS

v1 = tf.compat.v1
FORMATS_OF_GRAPHS = {
    "ref": ("v1", "v2"),
    "resource": ("v2", "objects", "saved_model"),
    "partitioned": ("v2",),
}
# A file of Keras has ten times the size of the others, and Keras changes less often: of all its
# versions, these write one. {format: versions of TensorFlow}
OF_KERAS = {
    "keras2.h5": ("1.15", "2.4", "2.10", "2.15", "2.21"),
    "keras3.keras": ("2.16", "2.21", "2.22"),
    "keras3.h5": ("2.21",),
}
# The files that TensorFlow writes beside the values.
LEFT_OUT = (".meta", ".pb", ".pbtxt", "checkpoint", ".tfevents", ".fingerprint", ".lock")


class Writer:
    """Writes into a new folder; `formats` and `states` are those of `files.Version`."""

    def __init__(self, folder):
        self.folder, self.formats, self.states = folder, {}, {}

    def add(self, name, path, state):
        """Adds a format; a format whose files are equal is not stored twice."""
        for other, _ in self.formats.values():
            if self._content(path) == self._content(other):
                path = other
                break
        self.formats[name] = (path, state)

    def _content(self, path):
        found = sorted(self.folder.glob(path + "*"))
        return [(str(x)[len(str(self.folder / path)) :], x.read_bytes()) for x in found]

    def graph(self, kind):
        """Writes the files of a graph."""
        session = graphs.Session(kind)
        session.start()
        for number in range(graphs.STEPS):
            session.train(number)
        saved = session.state()
        for each in FORMATS_OF_GRAPHS[kind]:
            path = prefix = f"{kind}.{each}"
            if each == "objects":
                path = prefix = "objects"
            elif each == "saved_model":
                path, prefix = "saved_model", "saved_model/variables/variables"
            session.save(each, str(self.folder / path))
            self.add(f"{kind}.{each}", prefix + ("-1" if each == "objects" else ""), kind)
        session.train(graphs.STEPS)
        self.states[kind] = saved, session.state()

    def estimator(self):
        """Writes the checkpoint of an Estimator."""
        with tempfile.TemporaryDirectory() as folder:
            path = estimators.train(folder, graphs.STEPS)
            saved = estimators.state(path)
            for each in Path(folder).glob(os.path.basename(path) + ".*"):
                ending = each.name[len(os.path.basename(path)) :]
                shutil.copy(str(each), str(self.folder / ("estimator" + ending)))
            later = estimators.state(estimators.train(folder, graphs.STEPS + 1))
        self.add("estimator", "estimator", "estimator")
        self.states["estimator"] = saved, later

    def keras(self, api, names):
        """Writes the files of a Keras model."""
        model = models.build(api)
        models.train(model)
        saved = models.state(model)
        for name in names:
            model.save(str(self.folder / name))
            self.add(name, name, api.name)
        models.train(model, graphs.STEPS, graphs.STEPS + 1)
        self.states[api.name] = saved, models.state(model)

    def finish(self):
        """Removes what the corpus leaves out, and files that no format has."""
        for name in files.files_in(self.folder):
            known = any(name.startswith(path) for path, _ in self.formats.values())
            if not known or name.endswith(LEFT_OUT) or ".tfevents" in name:
                (self.folder / name).unlink()
        files.write_states(self.folder / files.EXPECTED, self.states)
        made = {
            "tensorflow": tf.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "keras": getattr(tf.keras, "__version__", ""),
            "processor": files.processor(),
            "formats": self.formats,
        }
        text = json.dumps(made, indent=1) + "\n"
        (self.folder / files.MADE).write_text(text, encoding="utf-8")


def write_version(folder):
    """Writes all files of the installed TensorFlow into a new folder."""
    writer = Writer(folder)
    for kind in FORMATS_OF_GRAPHS:
        writer.graph(kind)
    if versions.estimator_problem() is None:
        writer.estimator()
    minor = ".".join(tf.__version__.split(".")[:2])
    for api, head in (("optimizer_v2", "keras2"), ("keras3", "keras3")):
        names = [n for n, minors in OF_KERAS.items() if n.startswith(head) and minor in minors]
        if names:
            writer.keras(APIS[api], names)
    writer.finish()


def _content(path):
    """Returns the bytes of a file, or names and checksums of members: zip files name the Python."""
    if path.suffix == ".json":
        return path.read_bytes()
    with zipfile.ZipFile(str(path)) as archive:
        return [(each.filename, each.CRC) for each in archive.infolist()]


def add_rules(made, corpus, version):
    """Moves files of rules to the corpus: to `ANY`, or to the version's folder if they differ."""
    for name in files.files_in(made):
        known = corpus / files.ANY / name
        if known.exists() and _content(known) == _content(made / name):
            continue
        target = version / "rules" / name if known.exists() else known
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(str(made / name), str(target))


def main(corpus):
    """Writes the files of the installed TensorFlow, and their checksums."""
    target = corpus / tf.__version__
    if target.exists():
        sys.exit(f"{target}: it is there. Files of the corpus are never written again.")
    changed = files.problems(corpus)
    if changed:
        sys.exit("\n".join(["The corpus is damaged:", *changed]))
    corpus.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made, of_rules = Path(folder) / "version", Path(folder) / "rules"
        made.mkdir()
        of_rules.mkdir()
        write_version(made)
        rules.write(of_rules)
        add_rules(of_rules, corpus, made)
        for name in files.files_in(made):
            place = target / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(str(made / name), str(place))
    sums = {name: files.checksum(corpus / name) for name in files.files_in(corpus)}
    files.write_sums(corpus, sums)
    size = sum((corpus / name).stat().st_size for name in sums)
    print(f"{target}: written. The corpus has {len(sums)} files, {size / 1e6:.2f} MB.")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    v1.logging.set_verbosity(v1.logging.ERROR)
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else files.FOLDER)
