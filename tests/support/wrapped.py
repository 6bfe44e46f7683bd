"""Makes a MultiOptimizer, and wrappers around a MultiOptimizer."""

import legacy_opt


def multi(step):
    routes = [(legacy_opt.AdagradDecayOptimizer(0.1, step), "table")]
    return legacy_opt.MultiOptimizer(routes, default=legacy_opt.LAMBOptimizer(0.1))


WRAPPERS = {
    "MultiOptimizer": multi,
    "GradientAccumulation": lambda step: legacy_opt.GradientAccumulationOptimizer(multi(step), 2),
    "MovingAverage": lambda step: legacy_opt.MovingAverageOptimizer(multi(step), 0.9),
    "Lookahead": lambda step: legacy_opt.LookaheadOptimizer(multi(step), 2),
    "SWA": lambda step: legacy_opt.SWAOptimizer(multi(step), 1, 2),
    "ClipByGlobalNorm": lambda step: legacy_opt.ClipByGlobalNormOptimizer(multi(step), 0.5),
}
