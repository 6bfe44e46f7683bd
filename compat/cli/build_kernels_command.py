"""`legacy-opt build-kernels`: compiles the TensorFlow operations that run native kernels."""

from . import terminal

_DESCRIPTION = """\
Compiles the operations that run native kernels, for the installed TensorFlow. This needs a C++
compiler and takes about 10 seconds. The native kernels themselves are compiled later, by a C
compiler, when an optimizer with native="auto" or native="require" first needs them.
"""
_EPILOG = """\
exit codes: 0, success; 2, the C++ compiler is missing or fails, or the folder of kernels cannot be
used
"""


def add_command(commands):
    """Adds `build-kernels` to the command line."""
    parser = terminal.add_parser(
        commands, "build-kernels", "compile the operations of native kernels", _DESCRIPTION, _EPILOG
    )
    parser.set_defaults(
        run=lambda arguments: terminal.run_command("build-kernels", execute, arguments)
    )


def execute(arguments, screen):
    """Compiles the operations, and returns an `Outcome`."""
    del arguments, screen
    from legacy_opt.native import driver

    path = str(driver.build())
    return terminal.Outcome(terminal.SUCCESS, {"driver": path}, (path,))
