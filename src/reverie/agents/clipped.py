"""Epochs of clipped updates (PPO) of an actor and a critic that see the features of a world model."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..config.dreamer import StepConfig
from ..config.schema import PPOConfig
from ..data.rows import Batch
from ..losses import ppo as losses
from ..nn import ranks
from ..nn.optim import Stepper
from .behavior import Behavior

RATIO_LIMIT = 10.0
"""Largest magnitude of a log-ratio; beyond it the ratio would only overflow."""
OUTPUT_LIMIT = 20.0
"""Largest magnitude of the policy's outputs: logits of twice this are certain to float32."""
METRICS = (
    "policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "ratio_clamped", "output_clamped",
    "actor_grad_norm", "critic_grad_norm", "grad_clipped", "ppo_skipped",
)  # fmt: skip


class ClippedUpdates:
    """The optimisers of actor and critic, which nothing else steps, and how a batch of features is gone over."""

    def __init__(self, behavior: Behavior, config: PPOConfig, generator: torch.Generator) -> None:
        self.behavior, self.config, self.generator = behavior, config, generator
        assert behavior.limit == OUTPUT_LIMIT
        settings = StepConfig("adam", config.lr, eps=config.adam_eps, clip=config.grad_norm, agc=0.0, warmup=0)
        self.actor = Stepper(behavior.actor.parameters(), settings)
        self.critic = Stepper(behavior.critic.parameters(), settings)
        self.clip = torch.tensor(config.clip, device=generator.device)

    def learn(self, batch: Batch, patient: bool = True) -> tuple[dict[str, Tensor], int]:
        """Metrics of several epochs of shuffled minibatches over rows (B, ...), and how many steps they took.

        The batch has `feature`, coded `action`, `logp`, `value`, `target`, `advantage` and `weight`. Unless `patient`,
        the epochs end early when the policy has moved further than `ppo.target_kl`; to look at that takes a wait.
        """
        count = len(batch["weight"])
        parts = max(1, round(count / self.config.minibatch))
        seen: list[Tensor] = []
        for _ in range(self.config.epochs):
            chance = torch.rand(count, generator=self.generator, device=self.generator.device)
            for index in chance.argsort().tensor_split(parts):
                seen.append(self._step({key: x.index_select(0, index) for key, x in batch.items()}))
            if not patient and self._moved_too_far(seen[-parts:]):
                break
        metrics = dict(zip(METRICS, torch.stack(seen).mean(0).unbind()))
        metrics["explained_variance"] = losses.explained_variance(batch["value"], batch["target"], batch["weight"])
        return {f"train/{name}": value for name, value in metrics.items()}, len(seen)

    def _step(self, batch: Batch) -> Tensor:
        """One step of actor and critic on rows (B, ...); the metrics of METRICS, stacked."""
        config, behavior, weight = self.config, self.behavior, batch["weight"]
        share = weight / weight.sum().clamp(min=1)
        advantage = losses.normalized(batch["advantage"], weight) if config.normalize_advantage else batch["advantage"]
        outputs = behavior.actor(batch["feature"]).float()
        policy = behavior.policy(outputs.clamp(-OUTPUT_LIMIT, OUTPUT_LIMIT))
        raw = policy.logp(batch["action"]) - batch["logp"]
        logp, old = batch["logp"] + raw.clamp(-RATIO_LIMIT, RATIO_LIMIT), batch["logp"]
        entropy = (policy.entropy() * share).sum()
        surrogate = (losses.policy_loss(logp, old, advantage, self.clip) * share).sum()
        error = (behavior.critic.loss(batch["feature"], batch["target"]) * share).sum()
        norms, finite = self._descend(surrogate - config.entropy * entropy, config.value_scale * error)
        with torch.no_grad():
            seen = [
                surrogate, error, entropy,
                (losses.approx_kl(logp, old) * share).sum(),
                (losses.clip_fraction(logp, old, self.clip) * share).sum(),
                ((raw.abs() > RATIO_LIMIT) * share).sum(),
                ((outputs.abs() > OUTPUT_LIMIT).float().mean(-1) * share).sum(),
                *norms,
                (torch.stack(norms) > (config.grad_norm or math.inf)).float().mean(),
                (~finite).float(),
            ]  # fmt: skip
            return torch.stack([value.float() for value in seen])

    def _descend(self, actor: Tensor, critic: Tensor) -> tuple[list[Tensor], Tensor]:
        """Step down both losses unless they or gradients are not finite; lengths of these, and whether it was done."""
        steppers = (self.actor, self.critic)
        for stepper in steppers:
            stepper.zero()
        (actor + critic).backward()
        norms = [stepper.norm() for stepper in steppers]
        finite = torch.isfinite(ranks.average_(torch.stack([*norms, actor.detach(), critic.detach()]))).all()
        for stepper, norm in zip(steppers, norms):
            stepper.step(norm, finite)
        return norms, finite

    def _moved_too_far(self, seen: list[Tensor]) -> bool:
        limit = self.config.target_kl
        return limit > 0 and bool(ranks.average_(torch.stack(seen)[:, METRICS.index("approx_kl")].mean()) > limit)

    def schedule(self, progress: float) -> None:
        """Learning rate and clip range, lowered linearly where the configuration asks for it."""
        left = max(0.0, 1.0 - progress)
        for stepper in (self.actor, self.critic):
            stepper.share.fill_(left if self.config.lr_anneal else 1.0)
        self.clip.fill_(self.config.clip * (left if self.config.clip_anneal else 1.0))

    def state_dict(self) -> dict[str, Any]:
        """The optimisers' states."""
        return {"actor": self.actor.state_dict(), "critic": self.critic.state_dict()}

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Take back what `state_dict` gave."""
        self.actor.load_state_dict(saved["actor"])
        self.critic.load_state_dict(saved["critic"])
