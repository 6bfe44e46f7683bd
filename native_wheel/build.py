"""Compiles the contents of the package legacy-opt-native (`make native-wheel`).

python native_wheel/build.py operations FOLDER    # for the TensorFlow of this Python
python native_wheel/build.py kernels FOLDER JAXLIB [MACHINE]   # these do not depend on TensorFlow

The operations library is a library of TensorFlow operations that run the kernels. JAXLIB is the
file of a wheel of jaxlib, with a header of XLA. MACHINE is a type of processor, such as aarch64;
the default is this machine's. `arm64.py` compiles operations for aarch64.
"""

import concurrent.futures
import contextlib
import functools
import inspect
import itertools
import os
import platform
import shlex
import sys
import tempfile
import zipfile
from pathlib import Path

import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import legacy_opt
from legacy_opt import recorded
from legacy_opt.compat.cli import native_diagnosis
from legacy_opt.core.argument_checks import WrongTypeError
from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.runtime import cache, probe_in_child, standalone, tensorflow_operations, xla
from legacy_opt.native.updates import kernel_choice, norms
from legacy_opt.native.updates.averages import AverageFormulas
from legacy_opt.native.updates.scaling import Factor, ScaledFormulas
from legacy_opt.optimizers import stock_rules
from legacy_opt.programs.program import UnsupportedError
from legacy_opt.recorded.native import programs_of
from legacy_opt.recorded.records import slot_inputs

THIS_MACHINE = platform.machine()
OLD_GLIBC = Path(__file__).with_name("old_glibc.h")
DTYPES = (tf.float32, tf.float64, tf.bfloat16, tf.float16)
# {constructor argument: values that need different kernels}. The trained variable is named "w".
CHOICES = {
    "apply_sparse_rmsprop": (False, True),
    "bias_correction": (True, False),
    "centered": (False, True),
    "exclude_from_layer_adaptation": (None, ["w"]),
    "exclude_from_weight_decay": (None, ["w"]),
    "factored": (True, False),
    "multiply_by_parameter_scale": (True, False),
    "skip_list": (None, ["w"]),
    "use_nesterov": (False, True),
    "weight_decay_rate": (0.0, 0.01),
}
# More arguments of this kind, {class: {argument: values}}. Some are constants in the kernels.
CHOICES_OF_CLASS = {
    "AdafactorOptimizer": {"beta1": (0.0, 0.9), "learning_rate": (None, 0.1)},
    "AdaBeliefOptimizer": {"amsgrad": (False, True), "rectify": (True, False)},
    "NovoGradOptimizer": {"amsgrad": (False, True), "grad_averaging": (False, True)},
    "RectifiedAdamOptimizer": {"amsgrad": (False, True)},
    "YogiOptimizer": {
        "beta1": (0.9, 0.0),
        "l1_regularization_strength": (0.0, 0.01),
        "l2_regularization_strength": (0.0, 0.01),
    },
}
# The types of the operations by which clipping, averaging and loss scaling scale float32 gradients.
PRODUCTS = ((), ("Mul",), ("RealDiv",), ("Mul", "RealDiv"))


def made_optimizers():
    """Yields functions that create an optimizer, one for each class and choice of arguments."""
    ours, stock = native_diagnosis.classes(), list(stock_rules.RULES)
    extended = [
        legacy_opt.extend_with_decoupled_weight_decay(cls)
        for cls in ours + stock
        if not issubclass(cls, legacy_opt.DecoupledWeightDecayExtension)
        and "weight_decay" not in inspect.signature(cls).parameters
    ]
    for cls in ours + stock + extended:
        known = inspect.signature(cls).parameters
        choices = dict(CHOICES, **CHOICES_OF_CLASS.get(cls.__name__, {}))
        choices = {name: values for name, values in choices.items() if name in known}
        for values in itertools.product(*choices.values()):
            yield functools.partial(accelerated, cls, **dict(zip(choices, values)))


def accelerated(cls, **arguments):
    """Creates an optimizer that uses native kernels."""
    return legacy_opt.native.accelerate(native_diagnosis.made(cls, **arguments))


def scaled(operations, formulas):
    """Returns formulas that first multiply or divide the gradient by scalars."""
    if not operations:
        return formulas
    return ScaledFormulas(formulas, [Factor(each, tf.ones([])) for each in operations])


def of_average(dtype):
    """Returns the C source of the kernel of moving averages."""
    with tf.Graph().as_default():
        inner = tf.compat.v1.train.GradientDescentOptimizer(0.1)
        optimizer = legacy_opt.MovingAverageOptimizer(inner)
        formulas = AverageFormulas(optimizer, tf.constant(0.1))
        variable = tf.compat.v1.get_variable("w", [2, 2], dtype, use_resource=True)
        formula = formulas.formula_of(variable, sparse=False)
        return emit(formula.program(), formula.slots)


def sources():
    """Yields the C source of each kernel. Some sources are yielded several times."""
    yield emit(probe_in_child.program())
    for dtype in DTYPES:
        yield emit(norms.formula(dtype).program())
        yield of_average(dtype)
    kinds = [
        (dtype, sparse, shape, products)
        for dtype, sparse, shape in itertools.product(DTYPES, (False, True), ((2, 2), (2,)))
        for products in PRODUCTS
        if not products or (dtype == tf.float32 and not sparse)
    ]
    for make, (dtype, sparse, shape, products) in itertools.product(made_optimizers(), kinds):
        change = functools.partial(scaled, products)
        with contextlib.suppress(UnsupportedError, WrongTypeError):
            yield kernel_choice.source_of(make, dtype, sparse, shape, change)
    for make, dtype in itertools.product(made_optimizers(), ("float32", "float64")):
        with contextlib.suppress(recorded.RecordError, UnsupportedError, WrongTypeError):
            yield from of_records(make, dtype)


def of_records(make, dtype):
    """Yields the C source of each kernel of an optimizer's recorded rule.

    Only some are also kernels of the optimizer itself.
    """
    with tf.Graph().as_default():
        tf.compat.v1.train.get_or_create_global_step()
        record = recorded.record(make(), {"w": [2, 2]}, dtype)
    for group in record.groups:
        for program, slots in programs_of(group):
            inputs = slot_inputs(slots, program.by_rows)
            yield emit(program, inputs)
            if not program.by_rows:  # with clipping by the global norm
                yield emit(program.scaled(), inputs)


def compile_kernels(found, folder, command, machine):
    """Compiles those kernels that a folder does not contain yet.

    Args:
      found: the C sources.
      folder: the folder.
      command: the compiler with its flags, from `cache.with_flags`.
      machine: the type of processor that the compiler compiles for.

    Returns:
      The paths of the kernels, in the order of `found`.
    """
    import tqdm  # not installed in environments that only compile an operations library

    def compiled(source):
        path = Path(folder, cache.file_name(cache.key_of(source), machine))
        if not path.exists():
            cache.compile_library(command, source, ".c", path)
        return path

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(tqdm.tqdm(pool.map(compiled, found), f"kernels for {machine}", len(found)))


def c_compiler(machine):
    """Returns the command that compiles kernels for a type of processor.

    For another type than this machine's, it is the cross compiler of Debian and Ubuntu; the
    environment variable CROSS_CC may name another.
    """
    if machine == THIS_MACHINE:
        return cache.compiler()
    command = cache.find_compiler("C cross", "CROSS_CC", f"{machine}-linux-gnu-gcc")
    return cache.with_flags(command)


def cpp_compiler(machine):
    """Returns the command of the C++ compiler for libraries that old Linux can load, too.

    Args:
      machine: the type of processor; see `c_compiler`.
    """
    if machine == THIS_MACHINE:
        command = cache.find_compiler("C++", "CXX", "c++")
    else:
        command = cache.find_compiler("C++ cross", "CROSS_CXX", f"{machine}-linux-gnu-g++")
    # The operator that sized deallocation calls is newer than manylinux_2_17.
    return [*command, "-include", str(OLD_GLIBC), "-fno-sized-deallocation"]


def compile_for_jax(folder, jaxlib, machine):
    """Compiles the library that runs kernels in JAX, with the header in a wheel of jaxlib."""
    with tempfile.TemporaryDirectory() as work, zipfile.ZipFile(jaxlib) as file:
        file.extract(f"jaxlib/include/{xla.HEADER.as_posix()}", work)
        include = str(Path(work, "jaxlib", "include"))
        xla.compile_file(cpp_compiler(machine), Path(folder), include, machine)


def main(what, folder, jaxlib=None, machine=THIS_MACHINE):
    """Compiles the operations library or the kernels (`what`) into a folder."""
    Path(folder).mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ[cache.FOLDER_VARIABLE] = folder
    if what == "operations":
        os.environ["CXX"] = " ".join(map(shlex.quote, cpp_compiler(machine)))
        print(tensorflow_operations.build())
        return
    standalone.compile_file(cpp_compiler(machine), Path(folder, standalone.name(machine)))
    compile_for_jax(folder, jaxlib, machine)
    compile_kernels(dict.fromkeys(sources()), folder, c_compiler(machine), machine)


if __name__ == "__main__":
    main(*sys.argv[1:])
