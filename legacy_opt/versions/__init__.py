"""Functions that hide the differences between versions of TensorFlow and Keras.

The functions test for features. They use version numbers only in messages, and for the few
differences that such a test cannot find. `legacy_opt.core`, `optimizers`, `wrappers` and `training`
use no private names of TensorFlow, except those of the Optimizer class.
"""

from legacy_opt.versions.estimators import *
from legacy_opt.versions.keras import *
from legacy_opt.versions.modes import *
from legacy_opt.versions.variables import *
