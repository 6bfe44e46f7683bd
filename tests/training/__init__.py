"""Sessions, Estimators and the helpers of one call."""
