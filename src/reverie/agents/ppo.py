"""Proximal Policy Optimisation (Schulman et al., 2017) on images, vectors or both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor

from ..config.schema import Config
from ..data.rows import Batch
from ..losses import ppo as losses
from ..losses.returns import lambda_return
from ..nn import ranks
from ..nn.graph import Graphed
from ..nn.native.convolved import Convolved, worthwhile
from ..nn.native.machine import NoCompiler, Unfit, ours
from ..nn.optim import FlatAdam, renewed
from ..nn.precision import in_half
from ..nn.scale import ReturnScale
from .actor_critic import ActorCritic
from .base import MODES, Agent, Carry, Learned, Mode
from .ppo_native import NativeActing, NativeEpochs

LOG = logging.getLogger("reverie")

Calculation = Callable[[Batch], Batch]
"""What a GPU can replay as one graph."""

Epoch = Callable[[Tensor, int], Tensor]
"""Updates on so many shares of rows in a given order: what they have measured (parts, ...)."""

METRICS = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "grad_norm")


class PPO(Agent):
    """Learns from each rollout in several epochs of shuffled minibatches, then forgets it."""

    family = "ppo"
    on_policy = True
    skipped: Tensor
    failed: Tensor

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__()
        self.config = settings = config.ppo
        self.rollout = settings.rollout
        self.keys = tuple(observation)
        half = in_half(settings.precision, device)
        self.net = ActorCritic(observation, action, settings, half).to(device)
        scale = ReturnScale(config.envs.count, settings.gamma).to(device) if settings.normalize_reward else None
        self.reward_scale = scale
        self.optimizer = FlatAdam(self.net.parameters(), settings.lr, settings.adam_eps)
        self.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.register_buffer("failed", torch.zeros((), dtype=torch.int64, device=device), persistent=False)
        self.clip: float | Tensor = settings.clip
        self.acting: dict[Mode, Calculation] = {mode: partial(self._act, mode=mode) for mode in MODES}
        self.updating: Calculation = self._update
        self.epochs: Callable[[Batch], Epoch] = self._epochs
        fast = config.run.fast
        if device.type == "cuda" and fast != "off":
            self._quicken()
        suits = fast == "native" or (fast == "auto" and (worthwhile() or not self.net.image_keys))
        self.native = device.type == "cpu" and suits and ranks.count() == 1
        """Whether programs are still to be made: whoever plays with what was learned waits for no compiler."""

    def _quicken(self) -> None:
        """Act and learn by captured graphs, which read from tensors what changes over a run."""
        device = self.generator.device
        self.acting = {mode: Graphed(act, [self.generator]) for mode, act in self.acting.items()}
        if ranks.count() == 1:
            self.clip = torch.tensor(self.clip, device=device)
            self.optimizer.lr = torch.tensor(self.optimizer.lr, device=device)
            self.updating = Graphed(self._update, [])

    def _nativize(self) -> None:
        """Act and learn by programs, where those can be made."""
        self.native = False
        try:
            ours(self, PPO)
            if self.net.image_keys:
                ours(self.net, ActorCritic)
                trunks = list(self.net.trunks.values())
                for trunk, convolved in zip(trunks, [Convolved(trunk) for trunk in trunks]):  # type: ignore[arg-type]
                    trunk._maps = convolved  # type: ignore[assignment]
            else:
                self.acting["train"], self.epochs = NativeActing(self), NativeEpochs(self)
        except Unfit as reason:
            level = logging.WARNING if isinstance(reason, NoCompiler) else logging.INFO
            LOG.log(level, "PPO runs operation by operation, which is slower: %s", reason)

    def published(self) -> list[Tensor]:
        """Weights and statistics of the network."""
        return list(self.net.state_dict(keep_vars=True).values())

    @torch.inference_mode()
    def act(self, rows: Batch, carry: Carry, mode: Mode) -> tuple[Batch, Carry]:
        """Action, its log-probability and the value at rows (N, ...)."""
        if self.native and mode == "train":
            self._nativize()
        return self.acting[mode]({key: rows[key] for key in (*self.keys, "is_first")}), carry

    def _act(self, rows: Batch, mode: Mode) -> Batch:
        policy, value = self.net(rows)
        if mode == "eval":
            return {"action": policy.mode(), "value": value}
        action = policy.sample(policy.noise(self.generator))
        return {"action": action, "logp": policy.logp(action), "value": value}

    def learn_rollout(self, rows: Batch) -> Learned:
        """One round: returns of the rollout, then epochs of minibatches over its rows (T + 1, N, ...)."""
        if self.native:
            self._nativize()
        batch = self._targets(rows)
        epoch, count = self.epochs(batch), batch["weight"].shape[0]
        parts = max(1, round(count / self.config.minibatch))
        seen: list[Tensor] = []
        for _ in range(self.config.epochs):
            order = torch.randperm(count, generator=self.generator, device=batch["weight"].device)
            seen.append(epoch(order, parts))
            if self._moved_too_far(seen[-1]):
                break
        measured = torch.cat(seen)
        metrics = dict(zip(METRICS, averages(measured).unbind())) | {"skipped": self._count_skipped(measured)}
        metrics["explained_variance"] = losses.explained_variance(batch["value"], batch["target"], batch["weight"])
        metrics["lr"] = torch.as_tensor(self.optimizer.lr).clone()
        self.net.vectors.update({key: x[:-1] for key, x in rows.items()})
        return Learned({f"train/{name}": value for name, value in metrics.items()}, updates=len(measured))

    def _epochs(self, batch: Batch) -> Epoch:
        """Epochs over rows (B, ...)."""

        def epoch(order: Tensor, parts: int) -> Tensor:
            shares = (picked(batch, share) for share in order.tensor_split(parts)) if parts > 1 else (batch,)
            return torch.stack([self.updating(share)["measured"] for share in shares])

        return epoch

    def _count_skipped(self, measured: Tensor) -> Tensor:
        """How many updates were skipped so far, with those of a round that has just been."""
        missed = len(measured) - measured[:, -1].sum().long()
        self.skipped += missed
        self.failed.add_(1).mul_(missed > 0)
        return self.skipped.float()

    def failures(self) -> Tensor:
        """How many rounds in a row had updates that were skipped for numbers that are not finite."""
        return self.failed

    def schedule(self, progress: float) -> None:
        """Learning rate and clip range, lowered linearly where the configuration asks for it."""
        left = max(0.0, 1.0 - progress)
        self.optimizer.lr = renewed(self.optimizer.lr, self.config.lr * (left if self.config.lr_anneal else 1.0))
        self.clip = renewed(self.clip, self.config.clip * (left if self.config.clip_anneal else 1.0))

    @torch.no_grad()
    def _targets(self, rows: Batch) -> Batch:
        """The first T rows as one flat batch, with advantages, value targets and weights."""
        config = self.config
        last = {key: rows[key][-1] for key in (*self.keys, "is_first")}
        value = torch.cat([rows["value"][:-1], self.net(last)[1].unsqueeze(0)])  # (T + 1, N)
        reward = rows["reward"]
        if self.reward_scale is not None:
            reward = torch.cat([reward[:1], self.reward_scale(reward[1:], rows["is_last"][1:])])
        discount = config.gamma * (~rows["is_terminal"]).float()
        trace = config.lam * (~rows["is_last"]).float()
        target = lambda_return(reward, value, discount, trace)  # (T, N)
        batch = {key: rows[key][:-1] for key in (*self.keys, "is_first", "action", "logp")}
        batch |= {"value": value[:-1], "target": target, "advantage": target - value[:-1]}
        batch["weight"] = (~rows["is_last"][:-1]).float()  # the action of a last row is never played
        return {key: x.flatten(0, 1) for key, x in batch.items()}

    def _update(self, batch: Batch) -> Batch:
        """One gradient step on rows (B, ...); metrics and, behind them, whether it was made, stacked as `measured`."""
        config = self.config
        policy, value = self.net(batch)
        if config.normalize_advantage:
            batch = batch | {"advantage": losses.normalized(batch["advantage"], batch["weight"])}
        logp, entropy = policy.logp(batch["action"]), policy.entropy()
        means = losses.Objective.apply(logp, entropy, value, batch, self.clip, config.value_clip)
        loss = means[0] + config.value_scale * means[1] - config.entropy * means[2]
        norm, finite = self.optimizer.step(loss, config.grad_norm)
        return {"measured": torch.cat([means.detach(), torch.stack([norm, finite.float()])])}

    def _moved_too_far(self, measured: Tensor) -> bool:
        limit = self.config.target_kl
        return limit > 0 and bool(ranks.average_(averages(measured)[METRICS.index("approx_kl")]) > limit)

    def save(self) -> dict[str, Any]:
        """Weights, statistics, optimiser, random state and what was skipped."""
        counts = {"skipped": self.skipped, "failed": self.failed}
        return super().save() | {"optimizer": self.optimizer.state_dict(), "counts": counts}

    def restore(self, saved: dict[str, Any]) -> None:
        """Take back what `save` gave."""
        super().restore(saved)
        self.optimizer.load_state_dict(saved["optimizer"])
        for name, count in saved["counts"].items():
            getattr(self, name).copy_(count)


def averages(measured: Tensor) -> Tensor:
    """The means of what updates have measured, over those that were made; NaN if none was."""
    found, made = measured.split([len(METRICS), 1], 1)
    return torch.where(made > 0, found, 0.0).sum(0) / made.sum()


def picked(batch: Batch, index: Tensor) -> Batch:
    """The rows of that index; `index_select` takes an eighth of the time of `x[index]` on images."""
    return {key: x.index_select(0, index) for key, x in batch.items()}
