"""AdamW, MomentumW and other optimizers with decoupled weight decay."""

CASES = {}
