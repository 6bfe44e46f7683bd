"""Makes hostile files that need no TensorFlow: archives, records, proofs, name maps, code."""

import io
import json
import os
import pickle
import struct
import zipfile

import numpy as np

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.proofs import files as proof_files
from tests.tools.hostile_files import commands

LARGE = 1 << 30  # bytes of a bomb, and the length of a file with a hole
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b[31m\r\n  forged line\x9b\u202e"
DIGITS = "7" * 3_000_000  # Python before 3.11 would need minutes for this number
DEEP = 100_000


class Attack:
    """What hostile code would do: it makes a file, which must not appear."""

    def __init__(self, canary):
        self.code = f"open({str(canary)!r}, 'w')"

    def __reduce__(self):
        return exec, (self.code,)


def zipped(path, members, packed=True):
    """Writes an archive; names may occur twice, and lead out of it."""
    method = zipfile.ZIP_DEFLATED if packed else zipfile.ZIP_STORED
    with zipfile.ZipFile(str(path), "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, bytes(content))  # a number is that of zeros
    return path


def with_hole(path, start=b"", end=b"", size=LARGE << 3):
    """Writes a file that takes little of the disk, and is long."""
    with open(str(path), "wb") as file:
        file.write(start)
        file.seek(size)
        file.write(end or b"\0")
    return path


def npy(array=None, header=None):
    """Returns a file of one array, or one with this text as header."""
    file = io.BytesIO()
    if header is None:
        np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
        return file.getvalue()
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x02\x00" + struct.pack("<I", len(text)) + text


def text_of(path, text):
    """Writes a text file."""
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    return path


def archives(folder, good, canary):
    """Yields (name, path, commands) of state files, which are archives."""
    state = [(f"{n}.npy", npy(x)) for n, x in np.load(str(good / "state.npz")).items()]
    attack = pickle.dumps(Attack(canary))
    objects = npy(header="{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + attack
    headers = {
        "10^9 elements": "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000,), }",
        "a shape that overflows": "{'descr': '<f4', 'fortran_order': False, 'shape': "
        "(4294967296, 4294967296), }",
        "a negative shape": "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
        "a subarray": "{'descr': ('<f4', (1000000000,)), 'fortran_order': False, 'shape': (), }",
        "nested header": "(" * DEEP,
        "unary header": "-" * DEEP + "1",
        "a header that calls": f"{{'descr': {Attack(canary).code}, 'shape': ()}}",
    }
    made = {
        "zip bomb": lambda p: zipped(p, [*state, ("variable/x.npy", LARGE)]),
        "zip bomb of one member": lambda p: zipped(p, [("record.npy", LARGE)]),
        "100,000 members": lambda p: zipped(p, [(f"{i}.npy", b"") for i in range(DEEP)], False),
        "zip slip": lambda p: zipped(
            p, [*state, ("../../outside.npy", npy(1)), (str(canary), npy(1))], False
        ),
        "names with escapes": lambda p: zipped(p, [*state, (f"{ESCAPES}.npy", npy(1))], False),
        "pickle in .npz": lambda p: zipped(p, [*state, ("variable/x.npy", objects)], False),
        "a pickle called .npz": lambda p: p.write_bytes(attack) and p,
        "a name twice": lambda p: zipped(p, [*state, *state], False),
        "a hole": with_hole,
        "an empty file": lambda p: p.write_bytes(b"") or p,
    }
    for name, header in headers.items():
        content = npy(header=header) + bytes(64)
        made[name] = lambda p, content=content: zipped(
            p, [*state, ("variable/x.npy", content)], False
        )
    for i, (name, make) in enumerate(made.items()):
        yield f"state: {name}", make(folder / f"s{i}.npz"), commands.STATE
    header = json.dumps({"x": {"dtype": "F32", "shape": [10**9], "data_offsets": [0, 4 * 10**9]}})
    path = folder / "s.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header.encode())
    yield "state: safetensors of 4 GB", path, commands.STATE


def of_proofs(folder, good, canary):
    """Yields (name, path, commands) of proofs and recorded trainings."""
    arrays = dict(np.load(str(good / "adam.proof")).items())
    head = json.loads(arrays["proof"].tobytes().decode())
    many = {"places": list(range(1, DEEP))}
    heads = {
        "10^9 steps": {"steps": 10**9},
        "NaN": {"hyperparameters": {name: ["nan"] * 4 for name in head["hyperparameters"]}},
        "made with escapes": {"made": {ESCAPES: ESCAPES, "html": "<script>alert(1)</script>"}},
        "10^5 gradients": {"gradients": {f"x{i}": [1] for i in range(DEEP)}},
        "no object": [],
        "numbers that are no steps": {"ends": [-1, 10**30, many]},
    }
    texts = {name: json.dumps({**head, **x} if x else x) for name, x in heads.items()}
    texts["a nested text"] = "[" * DEEP
    texts["a huge number"] = json.dumps(head).replace('"steps": 4', f'"steps": {DIGITS}')
    for i, (name, text) in enumerate(texts.items()):
        new = {**arrays, "proof": np.frombuffer(text.encode(), np.uint8)}
        yield f"proof: {name}", _proof(folder / f"p{i}.proof", new), commands.PROOF
    counts = {name: np.full_like(x, 1 << 62) for name, x in arrays.items() if "counts/" in name}
    others = {
        "counts that overflow": {**arrays, **counts},
        "10^4 proofs": _run([f"a{i}" for i in range(10_000)]),
        "10^5 inputs": _run([], inputs=[["x"]] * DEEP),
        "NaN everywhere": {
            n: np.full_like(x, np.nan) if x.dtype.kind == "f" else x for n, x in arrays.items()
        },
    }
    for i, (name, new) in enumerate(others.items()):
        yield f"proof: {name}", _proof(folder / f"q{i}.proof", new), commands.PROOF
    path = zipped(folder / "bomb.proof", [("proof.npy", LARGE)])
    proof_files.add_hash(path)
    yield "proof: zip bomb", path, commands.PROOF
    yield "proof: a hole", with_hole(folder / "hole.proof"), commands.PROOF


def _proof(path, arrays):
    state_files.save_npz(path, arrays.items())
    proof_files.add_hash(path)
    return path


def _run(names, inputs=()):
    head = {"format": "legacy-opt run", "version": 1, "made": {}, "texts": []}
    text = json.dumps({**head, "proofs": names, "inputs": list(inputs)})
    return {"run": np.frombuffer(text.encode(), np.uint8), "losses": np.zeros(1)}


def records(folder, good, canary):
    """Yields (name, path, commands) of recorded rules."""
    document = json.loads((good / "rule.json").read_text(encoding="utf-8"))
    text = json.dumps(document)
    version = f'"version": {document["version"]}'
    group = document["groups"][0]
    nodes = group["dense"]["nodes"]
    slot = next(iter(group["slots"].values()))

    def changed(**parts):
        dense = {**group["dense"], **parts.pop("dense", {})}
        return json.dumps({**document, "groups": [{**group, "dense": dense, **parts}]})

    cycle = [*nodes[:-1], [*nodes[-1][:3], [len(nodes) - 1] * len(nodes[-1][3]), *nodes[-1][4:]]]
    chain = ["Square", "float32", "element"]
    known = next(i for i, x in enumerate(nodes) if x[0] == "Input" and x[2] == "element")
    made = {
        "nested": "[" * DEEP,
        "nested objects": '{"a":' * DEEP,
        "a huge number": text.replace(version, f'"version": {DIGITS}'),
        "a float of many digits": text.replace(version, f"{version}.{DIGITS}"),
        "NaN": text.replace(version, '"version": NaN'),
        "a cycle of nodes": changed(dense={"nodes": cycle}),
        "10^5 nodes": changed(
            dense={"nodes": nodes + [[*chain, [known]]] * DEEP, "value": len(nodes)}
        ),
        "10^5 slots": changed(slots={f"s{i}": slot for i in range(DEEP)}),
        "10^5 groups": json.dumps({**document, "groups": [group] * 2000}),
        "huge shapes": changed(variables={"x": [1 << 62] * 32}, ranks=None),
        "a shape of 10^9": changed(variables={"x": [10**9]}, ranks=None),
        "names with escapes": json.dumps({**document, "optimizer": ESCAPES}),
        "an operation that is code": text.replace('"Sqrt"', '"__import__"'),
        "a file of Python": Attack(canary).code,
        "bytes that are not UTF-8": None,
    }
    for i, (name, content) in enumerate(made.items()):
        path = folder / f"r{i}.json"
        if content is None:
            path.write_bytes(b"\xff\xfe" * 9)
        else:
            text_of(path, content)
        yield f"record: {name}", path, commands.RECORD
    yield "record: a hole", with_hole(folder / "hole.json"), commands.RECORD


def name_maps(folder, good, canary):
    """Yields (name, path, commands) of name maps."""
    made = {
        "nested": '{"a":' * DEEP,
        "a nested dict": "{'a': " + "(" * DEEP,
        "an operator repeated": "{'a': " + "-" * DEEP + "1}",
        "a sum": "{'a': " + "1+" * DEEP + "1}",
        "attributes": "{'a': x" + ".y" * DEEP + "}",
        "code": "{'a': " + Attack(canary).code + "}",
        "a huge number": '{"a": ' + DIGITS + "}",
        "a huge number in a dict": "{'a': " + DIGITS + "}",
        "10^5 names": json.dumps({f"x{i}": f"y{i}" for i in range(DEEP)}),
        "names with escapes": json.dumps({ESCAPES: ESCAPES}),
        "a name of 3 MB": json.dumps({DIGITS: None}),
    }
    for i, (name, content) in enumerate(made.items()):
        yield f"names: {name}", text_of(folder / f"n{i}.json", content), commands.NAMES
    yield "names: a hole", with_hole(folder / "hole.names", b"{"), commands.NAMES


def code(folder, good, canary):
    """Yields (name, path, commands) of Python files and notebooks, which are read, not run."""
    use = "import tensorflow as tf\ntf.train.AdamOptimizer(1)\n"
    made = {
        "parentheses.py": use + "(" * DEEP,
        "operators.py": use + "x = " + "-" * DEEP + "1\n",
        "sum.py": use + "x = " + "+".join("1" * DEEP) + "\n",
        "calls.py": use + "f" + "()" * DEEP + "\n",
        "attributes.py": use + "x = y" + ".y" * DEEP + "\n",
        "blocks.py": use + "".join(" " * i + "if x:\n" for i in range(99)) + " " * 99 + "x\n",
        "else.py": use + "if x:\n pass\n" + "elif x:\n pass\n" * 20_000,
        "number.py": use + f"x = {DIGITS}\n",
        "aliases.py": use + "".join(f"a{i + 1} = a{i}\n" for i in range(20_000)),
        "assignment.py": "tf = tf.tf\n" * 20_000 + use,
        "lines.py": use * 20_000,
        "coding.py": "# coding: " + "x" * 300 + "\n" + use,
        "runs.py": Attack(canary).code + "\n" + use,
        f"{ESCAPES.replace('/', '')}.py": use,
        "nested.ipynb": '{"cells": ' + "[" * DEEP,
        "number.ipynb": '{"cells": [' + DIGITS + "]}",
        "magics.ipynb": json.dumps(
            {"cells": [{"cell_type": "code", "source": [f"!touch {canary}\n", use]}] * 2000}
        ),
    }
    for name, content in made.items():
        yield f"code: {ascii(name)}", text_of(folder / name, content), commands.CODE
    yield "code: a hole", with_hole(folder / "hole.py", use.encode()), commands.CODE
    yield "code: a hole in a notebook", with_hole(folder / "hole.ipynb", b"{"), commands.CODE
    (folder / "loop").mkdir()
    os.symlink("..", str(folder / "loop" / "up"))
    yield "code: a folder with a link to itself", folder / "loop", commands.CODE


def torch_files(folder, good, canary):
    """Yields (name, path, commands) of files of PyTorch, which must be installed."""
    import torch

    names = ("a", "b", "c", "d", "e", "f", "g", "h")
    laughs = {"x": torch.ones(1)}
    for name in names:
        laughs = {f"{name}{i}": laughs for i in range(10)}
    cycle = {"w": torch.ones(1)}
    cycle["model"] = cycle
    made = {
        "a pickle": lambda p: p.write_bytes(pickle.dumps(Attack(canary))),
        "code in it": lambda p: torch.save({"w": torch.ones(1), "x": Attack(canary)}, str(p)),
        "old format with code": lambda p: torch.save(
            {"x": Attack(canary)}, str(p), _use_new_zipfile_serialization=False
        ),
        "10^8 dicts": lambda p: torch.save({"model": laughs}, str(p)),
        "a cycle": lambda p: torch.save(cycle, str(p)),
        "one element 10^10 times": lambda p: torch.save(
            {"w": torch.ones(1).expand(10**10)}, str(p)
        ),
        "a sparse tensor of 10^12": lambda p: torch.save(
            {"w": torch.sparse_coo_tensor([[0]], [1.0], (10**12,))}, str(p)
        ),
        "zip bomb": lambda p: _packed_torch(p, torch),
        "names with escapes": lambda p: torch.save({ESCAPES: torch.ones(1)}, str(p)),
        "a hole": with_hole,
    }
    for i, (name, make) in enumerate(made.items()):
        path = folder / f"t{i}.pt"
        make(path)
        yield f"torch: {name}", path, commands.TORCH


def _packed_torch(path, torch):
    """Writes zeros, compressed: PyTorch never writes such a file, and reads it."""
    stored = io.BytesIO()
    torch.save({"w": torch.zeros(LARGE // 4)}, stored)
    with zipfile.ZipFile(stored) as archive:
        zipped(path, [(each, archive.read(each)) for each in archive.namelist()])


def special_files(folder, good, canary):
    """Yields (name, path, commands) of paths that are no regular files."""
    os.mkfifo(str(folder / "fifo"))
    (folder / "folder").mkdir()
    os.symlink("link", str(folder / "link"))
    for name in "fifo", "folder":
        yield f"path: {name}", folder / name, commands.DESTINATIONS
    yield "path: a link to itself", folder / "link", commands.ANY
    for ending in ".npz", ".proof", ".keras", ".h5", ".pt", ".json", ".py", ".index":
        path = folder / f"f{ending}"
        os.mkfifo(str(path))
        of = {".keras": commands.KERAS, ".h5": commands.KERAS, ".json": commands.RECORD}
        yield f"path: a FIFO called {path.name}", path, of.get(ending, commands.TORCH)
    for path in "/dev/zero", "/dev/stdin", "/dev/null":
        yield f"path: {path}", path, commands.ANY
    text = str(folder / ("no such" + ESCAPES))
    yield "path: a name with escapes", text, commands.ANY
    yield "path: a name of 5,000 characters", str(folder / ("n" * 5000)), commands.ANY
    yield "path: a name with surrogates", str(folder / "\udc80\udcff"), commands.ANY


def make_good(folder):
    """Writes a record and a proof that are as they should be."""
    record = recorded.load("AdamOptimizer")
    recorded.save(record, folder / "rule.json")
    proofs.write(folder / "adam.proof", proofs.draw(record, steps=4, rows=True, ends=[1, 4]))
