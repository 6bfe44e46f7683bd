"""Proofs that an implementation computes the same as a rule; see `legacy_opt.proofs`."""
