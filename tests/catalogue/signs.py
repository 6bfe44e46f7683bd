"""AddSign and PowerSign."""

CASES = {}
