"""What a rule makes of inputs, with error bars, and the judge; see `legacy_opt.proofs`."""
