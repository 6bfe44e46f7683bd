"""The project itself: lanes, packages, benchmarks."""
