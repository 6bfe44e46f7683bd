"""Makes hostile checkpoints, Keras files and graphs."""

import json
import struct
import zipfile

import h5py
import numpy as np
import tensorflow as tf
from tensorflow.core.framework import tensor_slice_pb2, types_pb2
from tensorflow.core.protobuf import saved_model_pb2, tensor_bundle_pb2, trackable_object_graph_pb2

from legacy_opt import recorded
from legacy_opt.compat.state.checkpoint_files.tensor_names import OBJECT_GRAPH
from legacy_opt.compat.state.checkpoints import state_transfer
from tests.support.checkpoints.made_files import FLOAT, bundle, entry, sliced, v1_file
from tests.tools.hostile_files import commands
from tests.tools.hostile_files.data_files import DEEP, ESCAPES, LARGE, text_of, with_hole, zipped

v1 = tf.compat.v1
MODEL = """
import tensorflow as tf
from legacy_opt.compat import to_keras
def build():
    inputs = tf.keras.Input((3,))
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(2, name="layer")(inputs))
    optimizer = to_keras(tf.compat.v1.train.AdamOptimizer(0.01))
    model.compile(optimizer, tf.keras.losses.MeanSquaredError())
    return model
def optimizer():
    return tf.compat.v1.train.AdamOptimizer(0.01)
"""
SCRIPT = """
import tensorflow as tf
x = tf.get_variable("x", [2])
train = tf.train.AdamOptimizer(0.1).minimize(tf.reduce_sum(x * x))
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    for _ in range(9):
        session.run(train)
"""
STRING = types_pb2.DT_STRING


def make_good(folder):
    """Writes a checkpoint, its state, a Keras file, a model and a script."""
    text_of(folder / "good_model.py", MODEL)
    text_of(folder / "script.py", SCRIPT)
    with tf.Graph().as_default(), v1.Session() as session:
        for name, shape in {"layer/kernel": [3, 2], "layer/bias": [2]}.items():
            v1.get_variable(name, shape)
        step = v1.train.get_or_create_global_step()
        loss = sum(tf.reduce_sum(tf.square(x)) for x in v1.trainable_variables())
        train = v1.train.AdamOptimizer(0.01).minimize(loss, step)
        session.run(v1.global_variables_initializer())
        session.run(train)
        v1.train.Saver().save(session, str(folder / "model"))
    state_transfer.export_state(
        folder / "model", recorded.load("AdamOptimizer"), folder / "state.npz"
    )
    build = {}
    exec(MODEL, build)
    build["build"]().save(str(folder / "model.h5"))


def indexes(folder, good, canary):
    """Yields (name, path, commands) of checkpoints with hostile indexes."""
    big = tensor_bundle_pb2.BundleHeaderProto(num_shards=1, endianness=1).SerializeToString()
    many = tensor_bundle_pb2.BundleHeaderProto(num_shards=2**31 - 1).SerializeToString()
    new = tensor_bundle_pb2.BundleHeaderProto(num_shards=1)
    new.version.min_consumer = 99
    extent = tensor_slice_pb2.TensorSliceProto
    made = {
        "a negative size": {"x": entry((-1,))},
        "a very negative size": {"x": entry((-(1 << 63),))},
        "two negative sizes": {"x": entry((-1, -2))},
        "a negative size and none": {"x": entry((-1, 0), size=0)},
        "a shape that overflows": {"x": entry((1 << 32, 1 << 32, 1 << 32))},
        "a shape that overflows to 2": {"x": entry((1 << 63 - 1, 1 << 62, 4, 2))},
        "a huge size and none": {"x": entry((1 << 62, 1 << 62, 0), size=0)},
        "a shape of 10^12": {"x": entry((10**12,))},
        "300 axes": {"x": entry((1,) * 300, size=4)},
        "an unknown rank": {"x": entry(None, size=4)},
        "an unknown dtype": {"x": entry(dtype=99)},
        "no dtype": {"x": entry(dtype=0)},
        "a resource": {"x": entry(dtype=types_pb2.DT_RESOURCE)},
        "a variant": {"x": entry(dtype=types_pb2.DT_VARIANT)},
        "a reference": {"x": entry(dtype=FLOAT + 100)},
        "a quantized dtype": {"x": entry(dtype=types_pb2.DT_QINT8)},
        "10^9 strings": {"x": entry((10**9,), dtype=STRING)},
        "long strings": {"x": entry((2,), dtype=STRING, size=64)},
        "a negative offset": {"x": entry(offset=-8)},
        "an offset that overflows": {"x": entry(offset=(1 << 63) - 1)},
        "a negative number of bytes": {"x": entry(size=-8)},
        "shard 10^9": {"x": entry(shard_id=10**9)},
        "a negative shard": {"x": entry(shard_id=-1)},
        "a slice that is not there": {"x": sliced((2,), 0, 2)},
        "a slice outside": {"x": sliced((2,), 1 << 62, 1 << 62)},
        "a negative slice": {"x": sliced((2,), -1, -1)},
        "a slice of more axes": {"x": sliced((2, 2), 0, 2)},
        "20,000 tensors": {f"x{i:06d}": entry() for i in range(20_000)},
        "600 slots of slots": {"x" + "/Adam" * i: entry() for i in range(600)},
        "names with escapes": {ESCAPES: entry(), f"{ESCAPES}/Adam": entry()},
        "a name of 1 MB": {"x" * (1 << 20): entry()},
        "names that lead outside": {"../../x": entry(), str(canary): entry()},
        "an object graph that is none": {OBJECT_GRAPH: entry()},
        "parts up to 10^9": {f"x/part_{i}": entry() for i in (0, 10**9)},
    }
    for i, (name, entries) in enumerate(made.items()):
        path = bundle(folder / f"i{i}", sorted(entries.items()))
        yield f"index: {name}", path, commands.INDEX
    two_slices = entry(size=0)
    for _ in range(DEEP):
        two_slices.slices.append(extent())
    others = {
        "of the other order of bytes": {"header": big},
        "2^31 data files": {"header": many},
        "of a later version": {"header": new.SerializeToString()},
        "no header": {"header": b"\xff" * 20},
        "a name twice": {"entries": [("x", entry()), ("x", entry((-1,)))]},
        "names in another order": {"entries": [("y", entry()), ("x", entry())]},
        "10^5 slices": {"entries": [("x", two_slices)]},
    }
    for i, (name, parts) in enumerate(others.items()):
        entries = parts.pop("entries", [("x", entry())])
        yield f"index: {name}", bundle(folder / f"j{i}", entries, **parts), commands.INDEX
    with_hole(folder / "hole.index")
    yield "index: a hole", folder / "hole", commands.INDEX
    bundle(folder / "data", [("x", entry((LARGE << 3,), size=LARGE << 5))])
    with_hole(folder / "data.data-00000-of-00001", size=LARGE << 5)
    yield "index: 32 GB of a hole", folder / "data", commands.INDEX


def of_format_v1(folder, good, canary):
    """Yields (name, path, commands) of checkpoints in the Saver's V1 format."""
    made = {
        "a negative size": ((-1,), (-1,), 2),
        "a shape that overflows": ((1 << 32,) * 3, (-1, -1, -1), 2),
        "a shape of 10^9": ((10**9,), (-1,), 2),
        "no data": ((64,), (-1,), 0),
        "300 axes": ((1,) * 300, (-1,) * 300, 1),
        "another slice": ((2,), (1 << 60,), 2),
        "slices of more axes": ((2,), (-1, -1), 2),
        "names with escapes": ((2,), (-1,), 2),
        "as it should be": ((2,), (-1,), 2),
    }
    for i, (name, (shape, lengths, count)) in enumerate(made.items()):
        tensor = ESCAPES if name == "names with escapes" else "x"
        path = folder / f"v{i}"
        path.write_bytes(v1_file(tensor, shape, lengths, count))
        yield f"V1 format: {name}", path, commands.INDEX
    path = with_hole(folder / "hole", end=struct.pack("<Q", 0xDB4775248B80FB57), size=LARGE)
    yield "V1 format: a hole", path, commands.INDEX


def object_graphs(folder, good, canary):
    """Yields (name, path, commands) of checkpoints of objects."""
    made = {
        "a cycle": [{"a": 1}, {"b": 0, "a": 1, "variable": 2}, {}],
        "a chain of 10^5 objects": [{"a": i + 1} for i in range(DEEP)] + [{}],
        "10^5 children": [{str(i): 1 for i in range(DEEP)}, {}],
        "10^4 optimizers": [{str(i): i for i in range(1, 10_000)}] + [{"a": 0}] * 10_000,
        "children that are not there": [{"a": 10**6, "b": -7}],
        "numbers of other scripts": [{"_variables": 1, "_iterations": 2}, {"²": 2, "٣": 2}, {}],
        "names with escapes": [{ESCAPES: 1}, {}],
        "no objects": [],
    }
    for i, (name, nodes) in enumerate(made.items()):
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        for children in nodes:
            node = graph.nodes.add()
            for local_name, number in children.items():
                node.children.add(node_id=number, local_name=local_name)
        if "optimizers" in name:
            for node in graph.nodes[1:]:
                node.slot_variables.add(
                    original_variable_node_id=1, slot_name="m", slot_variable_node_id=2
                )
        for node in graph.nodes[-1:]:
            node.attributes.add(name="VARIABLE_VALUE", full_name="x", checkpoint_key="x")
        path = str(folder / f"o{i}")
        with tf.Graph().as_default(), v1.Session() as session:
            texts = tf.constant(graph.SerializeToString())
            values = [texts, tf.zeros([2])]
            session.run(
                tf.raw_ops.SaveV2(
                    prefix=path,
                    tensor_names=[OBJECT_GRAPH, "x"],
                    shape_and_slices=["", ""],
                    tensors=values,
                )
            )
        yield f"objects: {name}", path, commands.CHECKPOINT


def folders(folder, good, canary):
    """Yields (name, path, commands) of folders whose file `checkpoint` is hostile."""
    made = {
        "itself": 'model_checkpoint_path: "."',
        "its parent": 'model_checkpoint_path: ".."',
        "a device": 'model_checkpoint_path: "/dev/zero"',
        "a name with escapes": f"model_checkpoint_path: {json.dumps(ESCAPES)}",
        "any file": 'model_checkpoint_path: "*"',
        "an expression": f'model_checkpoint_path: "" + str(open({str(canary)!r}, "w"))',
        "a nested message": "x {" * DEEP,
    }
    for i, (name, text) in enumerate(made.items()):
        home = folder / f"d{i}"
        home.mkdir()
        text_of(home / "checkpoint", text)
        yield f"checkpoint names {name}", home, commands.CHECKPOINT
    home = folder / "hole"
    home.mkdir()
    with_hole(home / "checkpoint")
    yield "checkpoint is a hole", home, commands.CHECKPOINT


def keras_files(folder, good, canary):
    """Yields (name, path, commands) of .keras and .h5 files."""
    attack = f"open({str(canary)!r}, 'w')"
    layer = {
        "class_name": "Lambda",
        "config": {"name": "l", "function": [attack, None, None], "function_type": "lambda"},
    }
    call = {"module": "builtins", "class_name": "exec", "config": {"source": attack}}
    system = {"module": "os", "class_name": "system", "config": f"touch {canary}"}
    configs = {"lambda": layer, "call": call, "system": system}
    for name, config in configs.items():
        document = {"class_name": "Sequential", "config": {"name": "s", "layers": [config]}}
        for ending, write in ((".keras", _archive), (".h5", _h5)):
            path = folder / f"{name}{ending}"
            write(path, document, good, optimizer=config)
            yield f"keras: {path.name}", path, commands.KERAS
    for name in "bomb", "declared", "cycle", "external", "names", "nested", "vlen", "virtual":
        for ending in ".h5", ".weights.h5", ".keras":
            path = folder / f"{name}{ending}"
            with h5py.File(str(folder / "temporary"), "w") as file:
                _fill(file, name, str(good / "model.h5"))
            content = (folder / "temporary").read_bytes()
            if ending == ".keras":
                zipped(path, [("config.json", b"{}"), ("model.weights.h5", content)])
            else:
                path.write_bytes(content)
            yield f"keras: {path.name}", path, commands.KERAS
    (folder / "temporary").unlink()
    members = [("model.weights.h5", LARGE), ("config.json", b"{}")]
    yield "keras: zip bomb", zipped(folder / "zip.keras", members), commands.KERAS
    members = [("../../outside", b"x"), (str(canary), b"x"), ("model.weights.h5", b"x")]
    yield "keras: zip slip", zipped(folder / "slip.keras", members), commands.KERAS
    for ending in ".keras", ".h5":
        yield f"keras: a hole{ending}", with_hole(folder / f"hole{ending}"), commands.KERAS


def _archive(path, document, good, optimizer):
    document["compile_config"] = {"optimizer": optimizer}
    weights = (good / "model.h5").read_bytes()
    zipped(
        path,
        [
            ("metadata.json", b'{"keras_version": "3.0.0"}'),
            ("config.json", json.dumps(document).encode()),
            ("model.weights.h5", weights),
        ],
    )


def _h5(path, document, good, optimizer):
    path.write_bytes((good / "model.h5").read_bytes())
    with h5py.File(str(path), "a") as file:
        file.attrs["model_config"] = json.dumps(document)
        file.attrs["training_config"] = json.dumps({"optimizer_config": optimizer})


def _fill(file, name, other):
    """Writes a hostile HDF5 file, which has the optimizer's weights at the usual place."""
    weights = file.create_group("optimizer_weights")
    weights.attrs["weight_names"] = [b"iter:0"]
    file.create_group("model_weights").attrs["layer_names"] = [b"layer"]
    layer = file.create_group("model_weights/layer")
    layer.attrs["weight_names"] = [b"layer/kernel:0"]
    layer.create_group("layer")
    if name == "bomb":
        options = {"compression": "gzip", "compression_opts": 9, "chunks": (1 << 24,)}
        data = weights.create_dataset("iter:0", (LARGE // 4,), np.float32, **options)
        data[: 1 << 24] = 0
        layer["layer/kernel:0"] = np.zeros([3, 2], np.float32)
    elif name == "declared":
        weights.create_dataset("iter:0", (1 << 60,), np.float32, chunks=(1 << 20,))
        layer.create_dataset("layer/kernel:0", (1 << 60,), np.float32, chunks=(1 << 20,))
    elif name == "cycle":
        weights["iter:0"] = h5py.SoftLink("/optimizer_weights")
        layer["layer/kernel:0"] = file["model_weights"]
    elif name == "external":
        weights["iter:0"] = h5py.ExternalLink(other, "/model_weights/layer/layer/kernel:0")
        layer["layer/kernel:0"] = h5py.ExternalLink("/dev/zero", "/x")
    elif name == "names":
        weights.attrs["weight_names"] = [ESCAPES.encode()] * 2
        weights.create_dataset("\x1b[31m", (2,), np.float32)
    elif name == "nested":
        for _ in range(2000):
            weights = weights.create_group("g")
        weights.create_dataset("x", (2,), np.float32)
    elif name == "vlen":
        kind = h5py.special_dtype(vlen=np.dtype("float32"))
        weights.create_dataset("iter:0", (10**8,), kind, chunks=(1 << 20,))
        layer.create_dataset("layer/kernel:0", (10**8,), kind, chunks=(1 << 20,))
    elif name == "virtual":
        space = h5py.h5s.create_simple((8,))
        made = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        made.set_external(b"/etc/passwd", 0, 32)  # the data are those of another file
        h5py.h5d.create(weights.id, b"iter:0", h5py.h5t.IEEE_F32LE, space, made)


def graphs(folder, good, canary):
    """Yields (name, path, commands) of graphs, which have PyFunc and operations of legacy_opt."""
    graph = tf.Graph()
    with graph.as_default():
        v1.py_func(lambda: np.float32(canary.write_text("x")), [], tf.float32)
        tf.raw_ops.WriteFile(filename=str(canary), contents="x")
    definition = graph.as_graph_def()
    node = definition.node.add(name="own", op="LegacyOptUpdate")
    node.attr["code"].s = b"int main() {}"
    home = folder / "saved_model"
    (home / "variables").mkdir(parents=True)
    text_of(folder / "graph.pbtxt", str(definition))
    meta = v1.MetaGraphDef(graph_def=definition)
    (folder / "model.meta").write_bytes(meta.SerializeToString())
    saved = saved_model_pb2.SavedModel(saved_model_schema_version=1)
    saved.meta_graphs.add().CopyFrom(meta)
    saved.meta_graphs[0].meta_info_def.tags.append("serve")
    (home / "saved_model.pb").write_bytes(saved.SerializeToString())
    for name in "graph.pbtxt", "model.meta", "saved_model":
        yield f"graph: {name}", folder / name, commands.GRAPH
    path = folder / "packed.zip"
    with zipfile.ZipFile(str(path), "w") as archive:
        archive.writestr("saved_model.pb", saved.SerializeToString())
    yield "graph: an archive", path, commands.GRAPH
