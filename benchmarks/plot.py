"""Learning curves of runs as one picture, from their metrics.jsonl.

python benchmarks/plot.py OUT.png NAME=METRICS.jsonl ...      (needs matplotlib)
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def series(path: Path, metric: str) -> tuple[list[float], list[float]]:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    points = [(line["step"], line[metric]) for line in lines if line.get(metric) is not None]
    return [step / 1e6 for step, _ in points], [value for _, value in points]


def main() -> None:
    out, *runs = sys.argv[1:]
    figure, axes = plt.subplots(1, len(runs), figsize=(4.2 * len(runs), 3.2), squeeze=False)
    for axis, run in zip(axes[0], runs):
        name, _, path = run.partition("=")
        axis.plot(*series(Path(path), "episode/recent_mean"), label="training, mean of the last 100 episodes")
        axis.plot(*series(Path(path), "eval/mean_return"), "o-", label="evaluation")
        axis.set_title(name)
        axis.set_xlabel("agent steps, millions")
        axis.grid(alpha=0.3)
    axes[0][0].set_ylabel("return")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main()
