"""Losses and diagnostics of Proximal Policy Optimisation (Schulman et al., 2017). Callers reduce."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def policy_loss(logp: Tensor, old_logp: Tensor, advantage: Tensor, clip: float | Tensor) -> Tensor:
    """The clipped surrogate objective, negated."""
    ratio = (logp - old_logp).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage)  # type: ignore[arg-type]


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float) -> Tensor:
    """Squared error of the value; with a clip, the worse of it and the error of the value kept near the old one."""
    error = (value - target).square()
    if clip <= 0:
        return error
    near = old_value + (value - old_value).clamp(-clip, clip)
    return torch.maximum(error, (near - target).square())


def approx_kl(logp: Tensor, old_logp: Tensor) -> Tensor:
    """The estimator (r - 1) - log r of KL(old || new), which is never negative (Schulman, 2020)."""
    log_ratio = logp - old_logp
    return log_ratio.expm1() - log_ratio


def clip_fraction(logp: Tensor, old_logp: Tensor, clip: float | Tensor) -> Tensor:
    """1 where the ratio lies outside the clip range."""
    return (((logp - old_logp).exp() - 1).abs() > clip).float()


def explained_variance(value: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """1 - Var(target - value) / Var(target) over rows of weight 1; 0 where the targets do not vary."""
    unexplained, total = _variance(target - value, weight), _variance(target, weight)
    return torch.where(total > 0, 1 - unexplained / total.clamp(min=1e-12), torch.zeros_like(total))


def normalized(advantage: Tensor, weight: Tensor) -> Tensor:
    """Advantages with mean 0 and deviation 1 over rows of weight 1."""
    total = weight.sum().clamp(min=1)
    mean = (advantage * weight).sum() / total
    variance = ((advantage - mean).square() * weight).sum() / (total - 1).clamp(min=1)
    return (advantage - mean) / (variance.sqrt() + 1e-8)


def _variance(x: Tensor, weight: Tensor) -> Tensor:
    total = weight.sum().clamp(min=1)
    mean = (x * weight).sum() / total
    return ((x - mean).square() * weight).sum() / total


class Objective(torch.autograd.Function):
    """PPO's losses and diagnostics as one step of the graph, with the gradient written out.

    The same as the functions above under autograd, in a third of the operations: what counts for small networks.
    """

    @staticmethod
    def forward(
        ctx: Any, logp: Tensor, entropy: Tensor, value: Tensor, batch: dict[str, Tensor], clip: Any, value_clip: float
    ) -> Tensor:
        """Weighted means of policy loss, value loss, entropy, KL and clip fraction, (5,)."""
        old, advantage, target = batch["logp"], batch["advantage"], batch["target"]
        share = batch["weight"] / batch["weight"].sum().clamp(min=1)
        surrogate = policy_loss(logp, old, advantage, clip)
        error = value_loss(value, batch["value"], target, value_clip)
        kl, clipped = approx_kl(logp, old), clip_fraction(logp, old, clip)
        free = (logp - old).exp() * advantage
        slope = 2 * (value - target)
        if value_clip > 0:
            inside = (value - batch["value"]).abs() <= value_clip
            slope = slope * (inside | (error <= (value - target).square()))
        ctx.save_for_backward(torch.where(surrogate <= -free, -free, 0.0) * share, slope * share, share)
        return torch.stack([surrogate, error, entropy, kl, clipped.to(error.dtype)]) @ share

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of log-probability, entropy and value; the diagnostics have none."""
        policy, value, share = ctx.saved_tensors
        return gradient[0] * policy, gradient[2] * share, gradient[1] * value, None, None, None
