"""Figures of a measurement as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..log.sinks.phrases import size


def metric(value: float, unit: str = "") -> str:
    """A figure with about four digits and, where it is large, a prefix: 12.34, 5,678, 1.2 M, 3.4 TFLOP."""
    for least, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= least:
            return f"{value / least:,.2f} {prefix}{unit}"
    plain = f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
    return f"{plain} {unit}".rstrip()


def percent(value: float) -> str:
    """A share in percent."""
    return f"{100 * value:.1f} %"


def whole(value: float) -> str:
    """A count in full."""
    return f"{value:,.0f}"


FIGURES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "updates_per_second": ("updates/s", metric),
    "update_ms": ("ms an update", metric),
    "rounds_per_second": ("rounds/s", metric),
    "round_ms": ("ms a round", metric),
    "samples_per_second": ("samples/s", metric),
    "calls_per_second": ("calls/s", metric),
    "call_ms": ("ms a call", metric),
    "steps_per_second": ("steps/s", metric),
    "steps_per_second_each": ("steps/s of each environment", metric),
    "frames_per_second": ("frames/s", metric),
    "step_ms": ("ms a step of all", metric),
    "added_per_second": ("steps added/s", metric),
    "batches_per_second": ("batches sampled/s", metric),
    "windows_per_second": ("windows sampled/s", metric),
    "sample_ms": ("ms a batch", metric),
    "writebacks_per_second": ("write-backs/s", metric),
    "writeback_ms": ("ms a write-back", metric),
    "spread": ("spread of the repeats", percent),
    "warmup_seconds": ("warm-up in seconds", metric),
    "peak_bytes": ("peak memory", size),
    "bytes_per_step": ("bytes a step", whole),
    "replay_bytes": ("full replay", size),
    "storage": ("storage", str),
    "backend": ("environments run in", str),
    "environments": ("environments", whole),
    "parameters": ("weights", whole),
    "flops": ("FLOPs of an update", lambda value: metric(value, "FLOP")),
    "flops_per_second": ("reached", lambda value: metric(value, "FLOP/s")),
    "device_flops_per_second": ("the device's measured rate", lambda value: metric(value, "FLOP/s")),
    "device_share": ("share of it", percent),
}
"""Figure -> what the table calls it, and how it is written there."""


def table(report: dict[str, Any]) -> str:
    """The figures of a report, one a line, and its parts where it has them."""
    where = f"{report['device']} ({report['device_name']})"
    what = f"{report['subject']}: {report['agent']} on {report['task']}, {where}, torch {report['torch']}"
    rows = [(label, written(report[name])) for name, (label, written) in FIGURES.items() if name in report]
    lines = [what, "", *columns(rows)]
    if "parts" in report:
        shown = [("part", "ms forward", "ms with gradients", "share")]
        shown += [
            (each["part"], f"{each['forward_ms']:.3f}", f"{each['ms']:.3f}", percent(each["share"]))
            for each in report["parts"]
        ]
        lines += ["", *columns(shown)]
    return "\n".join(lines)


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as lines: the first column begins alike, the others end alike."""
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *(cell.rjust(n) for cell, n in zip(row[1:], widths[1:]))])
        for row in rows
    ]
