"""Where the time of an update goes on a GPU: its kernels, by what they take together, and its stretches.

    python benchmarks/timeline.py [--sizes 12m 50m 200m] [--updates 4] [--top 40] [--json FILE]

Images of 64x64, compiled, sampling and write-back included, as `benchmarks/growth.py` has them. Stretches are cut where
the filter's two kernels begin and end, so they are told of sizes that have them; predictions and the way back go on
beside the main stream, so what all streams are busy for is more than the time of an update.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

import torch
from growth import MIDDLE, config_of, update_of
from torch.profiler import ProfilerActivity, profile

from reverie.build import make_parts
from reverie.nn.graph import WARMUP
from reverie.tools.bench import Stopwatch

KINDS = ("kernel", "gpu_memcpy", "gpu_memset")


class Kernel(NamedTuple):
    """One start of a kernel, in microseconds."""

    begin: float
    length: float
    stream: int
    name: str

    @property
    def end(self) -> float:
        """When it was done."""
        return self.begin + self.length


def kernels_of(trace: Path) -> list[Kernel]:
    """What a profile saw on the GPU, in order."""
    events = [event for event in json.loads(trace.read_text())["traceEvents"] if event.get("cat") in KINDS]
    found = [Kernel(event["ts"], event["dur"], event["args"]["stream"], event["name"]) for event in events]
    return sorted(found)


def stretches(kernels: list[Kernel]) -> dict[str, float]:
    """Milliseconds of one update before, in, between and after the filter's kernels."""
    there = next((each for each in kernels if each.name == "forward_scan"), None)
    back = next((each for each in kernels if each.name == "reverse_scan"), None)
    if there is None or back is None:
        return {}
    returning = max(each.end for each in kernels if each.stream == back.stream)
    marks = [kernels[0].begin, there.begin, there.end, back.begin, back.end, returning]
    names = ("encoder", "filter", "dreams and predictions", "filter backwards", "the way back", "optimiser")
    ends = [*marks[1:], max(each.end for each in kernels)]
    return {name: (end - begin) / 1000 for name, begin, end in zip(names, marks, ends)}


def measured(size: str, words: argparse.Namespace, folder: str) -> dict[str, object]:
    """The rate of updates of a published size, and the kernels of some of them."""
    config = config_of(words, MIDDLE["cuda"] | {"model": size}, 16, folder)
    parts = make_parts(config)
    parts.close()
    call = update_of(config, parts, Path(folder))
    watch = Stopwatch(parts.device, words.repeats, words.seconds)
    watch.block(call, WARMUP + 1)
    timing = watch.measure(call)
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(words.updates):
            call()
        torch.cuda.synchronize()
    trace = Path(folder) / "trace.json"
    seen.export_chrome_trace(str(trace))
    kernels = kernels_of(trace)
    spent: defaultdict[str, float] = defaultdict(float)
    for each in kernels:
        spent[each.name] += each.length / 1000 / words.updates
    last = kernels[-(len(kernels) // words.updates) :]
    starts = Counter(each.name for each in kernels)
    top = sorted(spent.items(), key=lambda item: -item[1])[: words.top]
    named = {f"{starts[name] / words.updates:4.0f} x {name}": time for name, time in top}
    busy: defaultdict[str, float] = defaultdict(float)
    for each in last:
        busy[f"stream {each.stream}"] += each.length / 1000
    figures = {"ms": timing.milliseconds, "rate": timing.rate, "stretches": stretches(last)}
    return figures | {"streams": dict(busy), "kernels": named}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["12m", "50m", "200m"], help="published sizes")
    parser.add_argument("--updates", type=int, default=4, help="updates that are profiled")
    parser.add_argument("--top", type=int, default=40, help="kernels that are told")
    parser.add_argument("--repeats", type=int, default=5, help="repeats that the rate is the median of")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long each repeat is")
    parser.add_argument("--fast", default="compile", help="how updates run")
    parser.add_argument("--json", type=Path, help="where to leave the figures, each size as soon as it is known")
    words = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("there is no GPU to look at")
    words.device = "cuda"
    told = {}
    for size in words.sizes:
        with tempfile.TemporaryDirectory() as folder:
            found = told[size] = measured(size, words, folder)
        print(f"{size}: {found['rate']:.1f} updates/s, {found['ms']:.2f} ms")
        for title in ("stretches", "streams", "kernels"):
            for name, spent in found[title].items():  # type: ignore[attr-defined]
                print(f"  {spent:8.3f} ms  {name[:110]}")
        if words.json:
            words.json.write_text(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
