#!/usr/bin/env python3
"""Compares the events for TensorBoard in a run folder with its metrics.jsonl, as the package tensorboard reads them.

Usage: python check_tensorboard.py RUN
"""

import json
import math
import pathlib
import sys

from tensorboard.backend.event_processing import event_accumulator


def main():
    run = pathlib.Path(sys.argv[1])
    expected = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        entry = json.loads(line)
        for name, value in entry.items():
            if name != "step" and isinstance(value, (int, float)) and not isinstance(value, bool):
                points = expected.setdefault(name, [])
                if not points or points[-1][0] != entry["step"]:  # training and validation both tell tokens and time
                    points.append((entry["step"], value))
    events = event_accumulator.EventAccumulator(str(run)).Reload()
    found = {name: [(event.step, event.value) for event in events.Scalars(name)] for name in events.Tags()["scalars"]}
    assert found.keys() == expected.keys(), found.keys() ^ expected.keys()
    for name, points in expected.items():
        assert [step for step, _ in points] == [step for step, _ in found[name]], (name, points, found[name])
        assert all(math.isclose(a, b, rel_tol=1e-6) for (_, a), (_, b) in zip(points, found[name])), name
    print(f"{run}: {sum(map(len, expected.values()))} numbers under {len(expected)} names are right")


if __name__ == "__main__":
    main()
