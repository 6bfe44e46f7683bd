"""BERT's AdamWeightDecay and LAMB."""

CASES = {}
