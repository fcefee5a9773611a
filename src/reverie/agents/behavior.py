"""Actor and critic, which learn in the world model's imagination."""

from __future__ import annotations

import copy
import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.dreamer import BehaviorConfig
from ..config.errors import UserError
from ..data.rows import Batch
from ..losses.actor import arrival_weight, mixed, reinforce, survival
from ..losses.returns import arrival_return, lambda_return
from ..nn.actions import ActionDist, Policy
from ..nn.frozen import frozen
from ..nn.heads import NumberHead
from ..nn.layers import Layers
from ..nn.optim import cut_apart
from ..nn.outputs import make_output
from ..nn.scale import ReturnRange
from ..world.model import WorldModel
from ..world.rssm import RSSM, State


@dataclass(frozen=True)
class Imagined:
    """Trajectories dreamt from a start: everything has a leading (H + 1, B) but the actions (H, B)."""

    feature: Tensor
    action: Tensor
    reward: Tensor
    cont: Tensor
    value: Tensor


class Behavior(nn.Module):
    """A policy, the value of states under it, and how both learn."""

    heavy: ClassVar[tuple[str, ...]] = ("foresee", "returned", "judged", "replay_loss")
    """Methods that an update spends its time in."""
    limit = math.inf
    """Largest magnitude of the policy's outputs."""
    updates: Tensor
    mix: Tensor
    entropy: Tensor

    def __init__(self, features: int, policy: Policy, config: BehaviorConfig, make: Layers, bins: int) -> None:
        super().__init__()
        if config.return_low >= config.return_high:
            raise UserError("--behavior.return_low must be below --behavior.return_high")
        self.config = config
        self.policy = policy
        width = config.units if config.actor_layers else features
        body = make.mlp(features, config.units, config.actor_layers)
        last = make.linear(width, policy.outputs, config.actor_scale, last=True)
        cut_apart(last, policy.sizes)
        self.actor = nn.Sequential(body, last)
        output = make_output(config.critic_head, bins)
        scale = 1.0 if config.critic_head == "normal" else 0.0  # two-hot critics begin at exactly zero
        self.critic = NumberHead(make, features, config.units, config.critic_layers, output, scale)
        self.slow = copy.deepcopy(self.critic).requires_grad_(False) if config.slow != "none" else None
        self.range = ReturnRange(config.return_low, config.return_high, config.return_rate)
        self.register_buffer("updates", torch.zeros((), dtype=torch.int64))
        self.through_dynamics = config.gradient in ("dynamics", "mixed") or (
            config.gradient == "auto" and not policy.discrete
        )
        self.by_score = config.gradient == "mixed" or not self.through_dynamics
        # weights that change over a run are tensors, since a captured graph reads their memory
        self.register_buffer("mix", torch.tensor(config.mix), persistent=False)
        self.register_buffer("entropy", torch.tensor(config.entropy), persistent=False)

    def schedule(self, progress: float) -> None:
        """Set the weights that change over a run."""
        config = self.config
        if config.mix_end is not None:
            self.mix.fill_(between(config.mix, config.mix_end, progress))
        if config.entropy_end is not None:
            self.entropy.fill_(between(config.entropy, config.entropy_end, progress))

    def forward(self, feature: Tensor) -> ActionDist:
        """The policy at features (..., F)."""
        outputs = self.actor(feature)
        return self.policy(outputs if math.isinf(self.limit) else outputs.clamp(-self.limit, self.limit))

    @property
    def judge(self) -> NumberHead:
        """The critic that returns and baselines come from."""
        return self.slow if self.slow is not None and self.config.slow_target else self.critic

    def imagine(self, world: WorldModel, start: State, generator: torch.Generator) -> Imagined:
        """Trajectories of this policy from a start (B,), with gradients where the actor learns through the dynamics."""
        shape = (self.config.horizon, len(start.deter))
        draws, noise = self.policy.noise(shape, generator), world.rssm.latent.noise(shape, generator)
        held: AbstractContextManager[None] = frozen(*self.advisers(world)) if self.through_dynamics else torch.no_grad()
        with held:
            feature, action = self.dreamt(world.rssm, start, draws, noise)
            reward, cont, value = self.foresee(world, feature, action)
        torch.clear_autocast_cache()  # older torch would reuse weights cast here, which know of no gradient
        return Imagined(feature, action, reward, cont, value)

    def advisers(self, world: WorldModel) -> tuple[nn.Module, ...]:
        """What rewards and values of dreams come from, which dreams do not teach."""
        return world, self.critic

    def dreamt(self, rssm: RSSM, start: State, draws: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Features (H + 1, B, F) and actions (H, B, A) of dreams from a start (B,)."""
        return rssm.imagine(start, partial(self.advance, rssm), draws, noise)

    def advance(self, rssm: RSSM, state: State, draw: Tensor, noise: Tensor) -> tuple[State, Tensor]:
        """The state (B,) dreamt to follow when this policy acts, and its action."""
        action = self.chosen(state.feature, draw)
        return rssm.step(state, action, noise), action

    def chosen(self, feature: Tensor, draw: Tensor) -> Tensor:
        """The action of this policy at features (B, F) in dreams."""
        if self.through_dynamics:
            with torch.enable_grad():
                return self(feature.detach()).rsample(draw)
        return self(feature).sample(draw)

    def foresee(self, world: WorldModel, feature: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, discount and value expected at features (H + 1, ..., F), between which lie actions (H, ..., A)."""
        return world.reward(feature), world.cont(feature), self.judge.pred(feature)

    def foreseen(
        self, world: WorldModel, start: State, is_terminal: Tensor, generator: torch.Generator
    ) -> tuple[Imagined, Tensor]:
        """Dreams from a start (B,), and their returns (H, B)."""
        dream = self.imagine(world, start.detach(), generator)
        if self.config.true_start:
            first = (~is_terminal).float().unsqueeze(0) * world.gamma
            dream = replace(dream, cont=torch.cat([first, dream.cont[1:]]))
        return dream, self.returned(dream)

    def returned(self, dream: Imagined) -> Tensor:
        """The returns (H, B) of dreams."""
        returned = arrival_return if self.config.arrival else lambda_return
        return returned(dream.reward, dream.value, dream.cont, torch.full_like(dream.cont, self.config.lam))

    def judged(self, dream: Imagined, returns: Tensor) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The losses (H, B) of actor and critic by dreams and their returns, and metrics."""
        config, cont = self.config, dream.cont
        weight = survival(cont).detach()
        feature = dream.feature.detach()
        actor, entropy = self._actor_loss(dream, feature, returns, weight)
        losses = {"actor": actor}
        counts = arrival_weight(cont).detach() if config.arrival else weight
        losses["critic"] = self.critic_loss(feature[:-1], returns.detach()) * counts[:-1]
        if not config.train_start:
            losses["critic"] = losses["critic"][1:]
        metrics = {
            "entropy": entropy.mean(),
            "imagined_reward": dream.reward.detach().mean(),
            "imagined_value": dream.value.detach().mean(),
            "imagined_return": returns.detach().mean(),
            "imagined_cont": cont.detach().mean(),
            "return_range": self.range.range,
        }
        return losses, metrics

    def _actor_loss(self, dream: Imagined, feature: Tensor, returns: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of every action (what followed it, as an advantage or through the dynamics) and its entropy."""
        config = self.config
        scale = self.range(returns) if config.return_norm else 1.0
        # where a value includes its state's own reward, an action is paid by the return of the state it leads to
        paid = returns[1:] if config.arrival else returns
        steps = len(paid)
        policy = self(feature[:steps])
        advantage = (paid - dream.value[:steps]) / scale
        objective = advantage if config.dynamics_baseline else paid / scale
        if self.by_score:
            score = reinforce(policy.logp(dream.action[:steps].detach()), advantage)
            objective = mixed(objective, score, self.mix) if self.through_dynamics else score
        entropy = policy.entropy()
        regular = entropy if config.regularizer == "entropy" else -policy.divergence()
        return -weight[:steps] * (objective + self.entropy * regular), entropy.detach()

    def critic_loss(self, feature: Tensor, target: Tensor) -> Tensor:
        """The loss (...) of returns at features, and of straying from the slow critic."""
        outputs = self.critic(feature)
        if self.slow is None or not self.config.slow_scale:
            return self.critic.output.loss(outputs, target)
        with torch.no_grad():
            slow = self.slow.pred(feature)
        return self.critic.output.loss_of_both(outputs, target, slow, self.config.slow_scale)

    def replay_loss(self, state: State, rows: Batch, boot: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """The critic's loss (B, T - 1) on replayed rows, and its values (B, T) there.

        Rewards are the replayed ones, and the values between are the imagined returns `boot` (B, T) at each state. The
        gradient reaches the world model through the states.
        """
        reward, boot = rows["reward"].T, boot.T  # (T, B)
        discount = gamma * (~rows["is_terminal"].T).float()
        trace = self.config.lam * (~rows["is_last"].T).float()
        returned = arrival_return if self.config.arrival else lambda_return
        target = returned(reward, boot, discount, trace).T  # (B, T - 1)
        weight = (~rows["is_last"][:, :-1]).float()
        loss = self.critic_loss(state.feature[:, :-1], target) * weight
        with torch.no_grad():
            value = self.critic.pred(state.feature)
        return loss, value

    @torch.no_grad()
    def follow(self, made: Tensor) -> None:
        """Let the slow critic follow the critic after an update, unless it was skipped."""
        self.updates.add_(made)
        if self.slow is None:
            return
        if self.config.slow == "average":
            rate = torch.full((), self.config.slow_rate, device=self.updates.device)
        else:
            rate = torch.eq(self.updates % self.config.slow_every, 0).float()
        for slow, fast in zip(self.slow.parameters(), self.critic.parameters()):
            slow.lerp_(fast, rate * made)


def policy_of(action: spaces.Space, config: BehaviorConfig) -> Policy:
    """From a network's outputs to distributions of these actions, as the configuration says."""
    return Policy(action, config.continuous, config.unimix, config.min_std, config.max_std, config.init_std)


def between(start: float, end: float | None, progress: float) -> float:
    """A weight that goes linearly from start to end over a run; None stays."""
    return start if end is None else start + (end - start) * min(1.0, progress)
