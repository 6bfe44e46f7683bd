"""Tests that `make bench-leave` measures steps in PyTorch."""

import json

from benchmarks.leave import cases, run


def test_each_comparison_is_measured_in_both_situations(tmp_path, capsys):
    path = tmp_path / "torch.json"
    assert run.main(["torch", "--repeats=1", "--scale-down=5000", f"--json={path}"]) == 0
    saved = json.loads(path.read_text())
    assert {"torch", "threads", "cpu", "load", "cores"} <= set(saved["environment"])
    found = {
        (each["workload"], each["optimizer"], each["compared_with"], each["goal"], each["way"])
        for each in saved["results"]
    }
    situations = ("after an operation", "rested")
    wanted = {(*each, way) for each in cases.COMPARISONS["torch"] for way in situations}
    assert found == wanted and len(saved["results"]) == len(wanted)
    assert "goals hit" in capsys.readouterr().out
