"""Functions that hide the differences between versions of TensorFlow and Keras.

The functions test for features. They use version numbers only in messages, and for the few
differences that cannot be found by testing for a feature. `legacy_opt.core`, `optimizers`,
`wrappers` and `training` use no private names of TensorFlow, except those of its Optimizer class.
"""

from legacy_opt.versions.call_stack import called_by_checkpoint, writing_saved_model
from legacy_opt.versions.estimators import (
    estimator,
    estimator_problem,
    has_own_estimator,
    layers,
    removed_modules,
    rnn_cell,
)
from legacy_opt.versions.function_graphs import captures
from legacy_opt.versions.keras import (
    KERAS_PACKAGE,
    api_of,
    assign_to,
    create_optimizer_weights,
    has_keras_2,
    in_stateless_scope,
    is_keras_3_variable,
    keras_1,
    keras_2,
    keras_3,
    keras_3_distributes,
    keras_facts,
    keras_optimizers_1,
    optimizer_v2,
    register_with_keras_2,
    register_with_keras_3,
    slot_key,
    tf_variable,
    tf_variable_without_cast,
    track_keras_variable,
    value_of,
    with_wrapped,
)
from legacy_opt.versions.modes import (
    CONTROL_FLOW,
    EAGER,
    FUNCTION,
    GRAPH,
    building,
    compiling_with_xla,
    cpp_standard,
    for_a_session,
    has_contrib,
    is_symbolic,
    lock_global_step_increment,
    make_some_wait,
    modules_v1,
    plain_module,
    regroups_constant_factors,
    remapping_crashes,
    runs_in_order,
    speaks_v1,
    tensorflow_build,
    tensorflow_modes,
    tensorflow_version,
    turn_remapping_off,
    v1_control_flow,
    xla_compiles_unique,
)
from legacy_opt.versions.pip_commands import pip_command
from legacy_opt.versions.variables import (
    Part,
    awaits_restoration,
    creates_dynamic_slots,
    distributed_variable,
    fit_slice_info,
    is_dynamic_embedding,
    own_aggregator,
    own_component,
    part_of,
    read_value,
    ref_of,
    saveable,
    static_shape,
)
