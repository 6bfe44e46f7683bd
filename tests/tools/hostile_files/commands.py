"""The commands that take files of others.

In the words, FILE is the hostile file, and GOOD the folder with good files, which `good` makes.
"""

import shlex

CHECKPOINT = {
    "inspect": "inspect FILE",
    "convert": "convert FILE new/model",
    "convert --optimizer": "convert FILE new/model --optimizer good_model:optimizer",
    "convert --model": "convert FILE new/model.h5 --model good_model:build",
    "convert --to adagrad-decay-v2": "convert FILE new/model --to adagrad-decay-v2",
    "convert --like": "convert GOOD/model.h5 new/model --model good_model:build --like FILE",
    "export": "export FILE --rule AdamOptimizer --out new.npz",
    "export --model": "export FILE --rule AdamOptimizer --model good_model:build --out new.npz",
    "import --like": "import GOOD/state.npz --like FILE --out new/model",
    "prove resume": "prove resume FILE GOOD/model",
}
# The others find out the contents in the same way.
INDEX = {
    name: CHECKPOINT[name]
    for name in ("inspect", "convert", "convert --model", "export", "import --like", "prove resume")
}
KERAS = {
    "inspect": "inspect FILE",
    "convert --model": "convert FILE new/model --model good_model:build",
    "convert --to keras": "convert FILE new/model.h5 --to keras --model good_model:build",
    "export --model": "export FILE --rule AdamOptimizer --model good_model:build --out new.npz",
    "prove resume": "prove resume FILE FILE",
    "prove resume --model": "prove resume FILE FILE --model good_model:build",
}
STATE = {
    "import": "import FILE --like GOOD/model --out new/model",
    "prove resume": "prove resume FILE GOOD/state.npz",
}
PROOF = {
    "prove replay": "prove replay FILE --with legacy-opt:numpy",
    "prove replay --html": "prove replay FILE --with legacy-opt:numpy --html new.html",
    "prove replay -- script": "prove replay FILE -- GOOD/script.py",
    "prove resume": "prove resume FILE FILE",
    "prove resume --steps": "prove resume GOOD/state.npz GOOD/state.npz --steps FILE",
}
RECORD = {
    "prove draw": "prove draw FILE --out new.proof",
    "export --rule": "export GOOD/model --rule FILE --out new.npz",
    "prove resume --rule": "prove resume GOOD/state.npz GOOD/state.npz --rule FILE",
}
NAMES = {
    "convert --name-map": "convert GOOD/model new/model --name-map FILE",
    "export --name-map": "export GOOD/model --rule AdamOptimizer --name-map FILE --out new.npz",
    "import --name-map": "import GOOD/state.npz --like GOOD/model --name-map FILE --out new/model",
    "prove resume --name-map": "prove resume GOOD/state.npz GOOD/state.npz --name-map FILE",
}
CODE = {"audit": "audit FILE"}
GRAPH = {
    "inspect": CHECKPOINT["inspect"],
    "convert": CHECKPOINT["convert"],
    "convert --to keras": "convert FILE new/model.h5 --to keras --model good_model:build",
    "prove resume": "prove resume FILE FILE",
}
TORCH = {"prove resume": "prove resume FILE FILE"}
ANY = {  # for FIFOs, devices and folders
    "inspect": CHECKPOINT["inspect"],
    "convert": CHECKPOINT["convert"],
    "convert --like": CHECKPOINT["convert --like"],
    "export": CHECKPOINT["export"],
    "import": STATE["import"],
    "import --like": CHECKPOINT["import --like"],
    "prove replay": PROOF["prove replay"],
    "prove draw": RECORD["prove draw"],
    "prove resume": CHECKPOINT["prove resume"],
    "convert --name-map": NAMES["convert --name-map"],
    **CODE,
    "run": "run FILE",
    "prove record": "prove record --out new.proof FILE",
}
DESTINATIONS = {
    **ANY,
    "convert to": "convert GOOD/model FILE --overwrite",
    "export --out": "export GOOD/model --rule AdamOptimizer --overwrite --out FILE",
    "import --out": "import GOOD/state.npz --like GOOD/model --overwrite --out FILE",
    "prove draw --out": "prove draw AdamOptimizer --overwrite --out FILE",
    "prove record --out": "prove record --overwrite --out FILE GOOD/script.py",
    "prove replay --html": "prove replay GOOD/adam.proof --with legacy-opt:numpy --overwrite "
    "--html FILE",
}


def words_of(command, file, good):
    """Returns the arguments of a command."""
    paths = {"FILE": str(file), "GOOD": str(good)}
    words = []
    for word in shlex.split(command):
        first, _, rest = word.partition("/")
        words.append(
            "/".join([paths[first], *([rest] if rest else [])]) if first in paths else word
        )
    return words
