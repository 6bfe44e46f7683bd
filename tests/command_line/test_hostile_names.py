"""Tests with tensor names that are empty, reserved, or contain control characters."""

import io
import json

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint, to_keras
from legacy_opt.compat.cli import tables
from legacy_opt.compat.state.checkpoint_files.errors import CheckpointError
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter
from tests.support.checkpoints.checkpoint_arrays import ARRAYS, assert_holds, files_in, write
from tests.support.processes import programs

v1 = tf.compat.v1
RESERVED = "_CHECKPOINTABLE_OBJECT_GRAPH"
# The list lacks "", because TensorFlow aborts the process if a name is empty. PROGRAM tests empty
# names in a new process.
IMPOSSIBLE = [RESERVED, "\0", "\0part", "\udc80"]
HOSTILE = {
    name: np.float32(number)
    for number, name in enumerate(
        ["/x", "x/", "a//b", "x\n  forged  float32", "\x1b[31mred\x1b[0m", "\r", "\t", "\x7f\x9b"]
        + ["ü/ö/日本語", "\u202egnp.exe", "\U0001f600", "n" * 5000, " ", ".", "../up", "a:0", "%s"]
        + ['"quoted"', "back\\slash", "x/part_0\n", "[bold]", "a\0b"]
    )
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
@pytest.mark.parametrize("way", ["add", "copy"])
def test_the_writer_refuses_impossible_names(tmp_path, name, way):
    write(tmp_path / "source", ARRAYS)
    with pytest.raises(CheckpointError, match="cannot be a tensor's name"), CheckpointWriter(
        tmp_path / "new" / "model"
    ) as writer:
        if way == "add":
            writer.add(name, np.float32(1))
        else:
            writer.copy(name, open_checkpoint(tmp_path / "source"), "step")
    assert not (tmp_path / "new").exists()


def test_the_writer_refuses_names_that_are_no_strings(tmp_path):
    with pytest.raises(CheckpointError, match="b'x' cannot be a tensor's name: it is not a string"):
        write(tmp_path / "model", {b"x": 1})


def test_a_graph_of_objects_is_copied_as_it_is(tmp_path):
    source = open_checkpoint(tf.train.Checkpoint(x=tf.Variable(1.0)).save(str(tmp_path / "old")))
    with CheckpointWriter(tmp_path / "model") as writer:
        writer.copy(RESERVED, source)
        for name in source.tensors:
            writer.copy(name, source)
    assert open_checkpoint(tmp_path / "model").object_graph.variables == (
        source.object_graph.variables
    )


PROGRAM = """
import sys
import numpy as np
import tensorflow as tf
from legacy_opt.compat import cli, load_v1_checkpoint, save_v1_checkpoint, to_keras
from legacy_opt.compat.state.checkpoint_files.writer import CheckpointWriter

def print_error(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except ValueError as error:
        print(str(error).splitlines()[0])

def write(path, name):
    with CheckpointWriter(path) as writer:
        writer.add(name, np.float32(1))

folder = sys.argv[1]
w = tf.compat.v2.Variable([1.0], name="w")
optimizer = to_keras(tf.compat.v1.train.MomentumOptimizer(0.1, 0.9))
write(folder + "/source", "w")
print_error(write, folder + "/new/a", "")
for work, path in (save_v1_checkpoint, "/new/b"), (load_v1_checkpoint, "/source"):
    for old in "w/Momentum", "w":
        print_error(work, folder + path, [w], optimizer, name_map={old: ""})
with open(folder + "/map.json", "w") as file:
    file.write('{"w": ""}')
words = ["convert", folder + "/source", folder + "/new/c", "--name-map", folder + "/map.json"]
print(cli.main(words), flush=True)
"""


def test_an_empty_name_is_refused_everywhere(tmp_path):
    done = programs.run("-c", PROGRAM, tmp_path, seconds=120)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.splitlines()
    assert "'' cannot be a tensor's name: it is empty" in lines[0]
    assert len(lines) == 6 and all("name_map: '' cannot be the name" in each for each in lines[1:5])
    error = done.stderr.splitlines()[-1]
    assert lines[5] == "2"
    assert "map.json' maps 'w' to '', but this cannot be a tensor's name" in error
    assert files_in(tmp_path) == ["checkpoint", "map.json"] + [
        "source" + ending for ending in (".data-00000-of-00001", ".index")
    ]


@pytest.mark.parametrize(
    ["work", "old"],
    [
        (save_v1_checkpoint, "w/Momentum"),
        (save_v1_checkpoint, "w"),
        (load_v1_checkpoint, "w/Momentum"),
        (load_v1_checkpoint, "w"),
    ],
)
def test_reserved_names_in_a_name_map(tmp_path, work, old):
    w = tf.compat.v2.Variable([1.0], name="w")
    optimizer = to_keras(v1.train.MomentumOptimizer(0.1, 0.9))
    write(tmp_path / "there", {"w": np.float32([1])})
    path = tmp_path / ("there" if work is load_v1_checkpoint else "new")
    with pytest.raises(ValueError, match=f"name_map: '{RESERVED}' cannot be the name"):
        work(path, [w], optimizer, name_map={old: RESERVED})
    assert not (tmp_path / "new.index").exists()


def test_a_variable_name_with_a_line_break_is_refused(tmp_path):
    w = tf.compat.v2.Variable([1.0], name="w")
    with pytest.raises(ValueError, match="cannot be the name of a variable"):
        save_v1_checkpoint(tmp_path / "new", {"w\n": w}, None)


@pytest.mark.parametrize(
    ["content", "words"],
    [
        (f'{{"x": "{RESERVED}"}}', "is reserved"),
        ('{"x": "\\u0000y"}', "begins with a NUL"),
        ('{"x": "\\ud800"}', "UTF-8 does not have"),
        ('{"x": "y", "x": "z"}', "has 'x' twice"),
        ("{'x': 'y', 'x': 'z'}", "has 'x' twice"),
        ('{"a":' * 100000, "map.json' cannot be read"),
        ("{'x': open('y')}", "cannot be read"),
        ("{'x': {'y': 'z'}}", "must be one object"),
        ('{"x": {}}', "must be one object"),
        ("{3: 'y'}", "must be one object"),
        ("[]", "must be one object"),
        ("", "cannot be read"),
    ],
)
def test_name_maps_that_are_refused(tmp_path, screen, content, words):
    write(tmp_path / "source", {"x": np.float32(1)})
    (tmp_path / "map.json").write_text(content)
    error = screen.refused(
        "convert", tmp_path / "source", tmp_path / "new", "--name-map", tmp_path / "map.json"
    )
    assert words in error and "map.json" in error
    assert not [name for name in files_in(tmp_path) if "new" in name]


def assert_printable(text):
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


def test_inspect_prints_names_as_one_line_each(tmp_path, screen):
    write(tmp_path / "model", HOSTILE)
    code, output, errors = screen.run("inspect", tmp_path / "model")
    assert (code, errors) == (0, "")
    assert_printable(output)
    heading, table = output.split("---\n", 1)
    assert len(table.splitlines()) == len(HOSTILE) and len(heading.splitlines()) < 9
    assert "x\\n  forged  float32" in table and "\\x1b[31mred" in table and "日本語" in table


def test_json_has_unescaped_names(tmp_path, screen):
    write(tmp_path / "model", HOSTILE)
    result = screen.json("inspect", tmp_path / "model")
    assert {each["name"] for each in result["variables"]} == set(HOSTILE)


def test_convert_prints_each_hostile_name_on_one_line(tmp_path, screen):
    write(tmp_path / "old", HOSTILE)
    code, output, errors = screen.run("convert", tmp_path / "old", tmp_path / "new")
    assert (code, errors) == (0, "")
    assert_holds(tmp_path / "new", HOSTILE)
    assert_printable(output)
    assert len(output.splitlines()) == len(HOSTILE) + 3
    assert_printable(screen.refused("convert", tmp_path / "old", tmp_path / "no\x1b[31m\n/new/\n"))


def test_convert_writes_hostile_names(tmp_path, screen):
    names = {f"x{number:02d}": name for number, name in enumerate(HOSTILE)}
    write(tmp_path / "old", {old: HOSTILE[new] for old, new in names.items()})
    (tmp_path / "map.json").write_text(json.dumps(names))
    words = ("convert", tmp_path / "old", tmp_path / "new", "--name-map", tmp_path / "map.json")
    assert screen.run(*words)[0] == 0
    assert_holds(tmp_path / "new", HOSTILE)


def test_audit_prints_paths_on_one_line(tmp_path, screen):
    path = tmp_path / "a\n\x1b[31mb.py"
    path.write_text("import tensorflow as tf\ntf.train.AdamOptimizer(1)\n")
    code, output, errors = screen.run("audit", path)
    assert (code, errors) == (0, "")
    assert_printable(output)
    assert "a\\n\\x1b[31mb.py:2:1" in output
    path.write_text("print 'AdamOptimizer'\n")
    assert_printable(screen.run("audit", path)[1])


def test_control_characters_of_arguments_and_environment_are_escaped(screen, monkeypatch):
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "\x1b[31m")
    assert_printable(screen.run("doctor")[1])
    assert_printable(screen.run("\x1b[31m")[2])
    assert_printable(screen.run("inspect", "x", "--traceback", "\x1b[31m")[2])
    assert_printable(screen.run("compare", "no_module\x1b:make")[2])


def test_characters_that_a_stream_cannot_encode_are_escaped():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    tables.show(("ü\n", tables.Table(("name",), [("日\x1b",)])), stream)
    stream.flush()
    assert stream.buffer.getvalue() == b"\\xfc\\n\nname\n----------\n\\u65e5\\x1b\n"
