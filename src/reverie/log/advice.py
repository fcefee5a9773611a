"""Advice on metrics: what a figure out of its usual range means and what to try, by how the agent learns.

Thresholds of PPO: approx_kl stays below 0.05 (an early stop by `ppo.target_kl` is usually set at 0.01 to 0.015);
clip_fraction is typically 0.1 to 0.3, above 0.5 the policy changes too fast, below 0.05 clipping does nothing; entropy
below 0.1 is a collapse and above 1.5 late in training no clear strategy, both said of seven actions, so here parts of
the largest entropy there can be; explained_variance should pass 0.7, below 0.5 advantages are noise and below 0 the
critic is worse than a constant.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from statistics import fmean

from ..agents.base import Family

Scalars = Mapping[str, float]

HIGH_KL, STOP_KL = 0.05, 0.015
LOW_CLIP, HIGH_CLIP = 0.05, 0.5
LOW_ENTROPY = 0.1
LOW_ENTROPY_PART = LOW_ENTROPY / math.log(7)
HIGH_ENTROPY_PART = 1.5 / math.log(7)
LATE_VARIANCE = 0.5

WARMED_UP, HALFWAY, NEAR_END = 0.1, 0.5, 0.8
"""Parts of a run: a critic needs a while, and a policy near the end may well be almost certain."""

CLIPPED: tuple[Family, ...] = ("ppo", "on_policy_ppo", "imagined_ppo")
"""Who learns by PPO's clipped updates. Others' policies may well be almost certain, and heed no option of PPO."""
SKIPPING: tuple[Family, ...] = ("dreamer", *CLIPPED)
"""Who leaves out updates that are not finite."""

REMEDIES: dict[Family, str] = {
    "ppo": "longer rollouts, more epochs or a larger --ppo.value_scale",
    "on_policy_ppo": "a longer --ppo.rollout, more --ppo.epochs or a larger --replay.ratio for better features",
    "imagined_ppo": "more --ppo.epochs, or a shorter --behavior.horizon",
}
"""Of a critic that explains little; where actor and critic have optimisers of their own, a scale does nothing."""

MUST_BE_FINITE = ("loss", "grad_norm", "entropy", "kl")


def advice(scalars: Scalars, family: Family, window: Sequence[Scalars] = (), actions: int | None = None) -> list[str]:
    """Lines of advice on the metrics of one write, judged by their mean over it and the writes of `window` before.

    `actions` is the number of discrete actions, 0 for continuous ones, None where it is not known.
    """
    return list(findings(scalars, family, window, actions).values())


def findings(
    scalars: Scalars, family: Family, window: Sequence[Scalars] = (), actions: int | None = None
) -> dict[str, str]:
    """Lines of advice by the name of what they are about."""
    if broken := _not_finite(scalars, family):
        return {"finite": broken}
    if family not in CLIPPED:
        return {}
    progress = scalars.get("time/progress", HALFWAY)
    recent = [*window, scalars]
    found = {
        "kl": _kl(_mean(recent, "train/approx_kl"), family),
        "clip": _clip(_mean(recent, "train/clip_fraction"), progress),
        "entropy": _entropy(_mean(recent, "train/entropy"), progress, actions),
        "critic": _critic(_mean(recent, "train/explained_variance"), progress, family),
    }
    return {name: line for name, line in found.items() if line}


class Adviser:
    """Advice over a run: on means of the last writes, and each piece once in `every` writes."""

    def __init__(self, family: Family, actions: int | None = None, every: int = 100, window: int = 5) -> None:
        self._family, self._actions = family, actions
        self._every = every
        self._window: deque[Scalars] = deque(maxlen=window - 1)
        self._writes = 0
        self._said: dict[str, int] = {}

    def lines(self, scalars: Scalars) -> list[str]:
        """What there is to say about this write that was not said a short while ago."""
        self._writes += 1
        patient = len(self._window) == self._window.maxlen  # one odd write is not worth a warning
        found = findings(scalars, self._family, tuple(self._window), self._actions)
        self._window.append(dict(scalars))
        due = [name for name in found if (patient or name == "finite") and self._due(name)]
        self._said.update(dict.fromkeys(due, self._writes))
        return [found[name] for name in due]

    def _due(self, name: str) -> bool:
        return name not in self._said or self._writes - self._said[name] >= self._every


def _mean(recent: Sequence[Scalars], name: str) -> float | None:
    values = [each[name] for each in recent if math.isfinite(each.get(name, math.nan))]
    return fmean(values) if values else None


def _not_finite(scalars: Scalars, family: Family) -> str:
    bad = [
        name
        for name, value in scalars.items()
        if name.startswith(("train/", "world/")) and name.endswith(MUST_BE_FINITE) and not math.isfinite(value)
    ]
    if not bad:
        return ""
    if family in SKIPPING:
        world = family == "dreamer" or any(name.startswith("world/") for name in bad)
        rate = "--optim.model.lr" if world else "--ppo.lr"
        return f"{', '.join(bad)} not finite: such updates are skipped; if they go on, lower {rate}"
    return f"{', '.join(bad)} not finite: training has diverged; go back to a checkpoint and lower the learning rate"


def _kl(value: float | None, family: Family) -> str:
    if value is None or value <= HIGH_KL:
        return ""
    fewer = (
        "make fewer --ppo.epochs" if family == "imagined_ppo" else f"stop epochs early with --ppo.target_kl {STOP_KL}"
    )
    return f"approx_kl {value:.3f} is above {HIGH_KL}: the policy changes too fast; lower --ppo.lr or {fewer}"


def _clip(value: float | None, progress: float) -> str:
    if value is None:
        return ""
    if value > HIGH_CLIP:
        return f"clip_fraction {value:.2f} is above {HIGH_CLIP}: the policy changes too fast; lower --ppo.lr"
    if value < LOW_CLIP and WARMED_UP < progress < NEAR_END:
        return f"clip_fraction {value:.3f} is below {LOW_CLIP}: updates are timid; --ppo.lr could be higher"
    return ""


def _entropy(value: float | None, progress: float, actions: int | None) -> str:
    differential = actions == 0 or (actions is None and value is not None and value < 0)
    if value is None or differential:  # of densities: it has no zero that would mean certainty
        return ""
    largest = math.log(actions) if actions and actions > 1 else None
    low = LOW_ENTROPY_PART * largest if largest else LOW_ENTROPY
    if value < low and progress < NEAR_END:
        return f"entropy {value:.3f} is below {low:.2g}: the policy hardly explores; raise --ppo.entropy"
    if largest and value > HIGH_ENTROPY_PART * largest and progress > HALFWAY:
        return f"entropy {value:.2f} of at most {largest:.2f}: no clear strategy yet; a smaller --ppo.entropy may help"
    return ""


def _critic(value: float | None, progress: float, family: Family) -> str:
    if value is None:
        return ""
    if value < 0 and progress > WARMED_UP:
        return (
            f"explained_variance {value:.2f} is below 0: the critic is worse than a constant; check reward scale and lr"
        )
    if value < LATE_VARIANCE and progress > HALFWAY:
        return f"explained_variance {value:.2f} is below {LATE_VARIANCE}: advantages are noisy; try {REMEDIES[family]}"
    return ""
