"""Creates the optimizer of a case with other constructor arguments."""

import functools
import inspect


def changed(case, change):
    """Returns a function that creates a case's optimizer with the arguments from `change`.

    `change` takes the dict of the case's arguments, and returns the dict of arguments to use.
    """
    cls, init = case.optimizer, case.optimizer.__init__

    @functools.wraps(init)
    def with_others(self, *args, **kwargs):
        if type(self) is not cls:
            return init(self, *args, **kwargs)
        bound = inspect.signature(init).bind(self, *args, **kwargs)
        bound.apply_defaults()
        arguments = dict(bound.arguments)
        del arguments["self"]
        cls.__init__ = init
        return init(self, **change(arguments))

    def make(step):
        cls.__init__ = with_others
        try:
            return case.make(step)
        finally:
            cls.__init__ = init

    return make
