"""A behaviour that goes where the world model has something to learn (Plan2Explore, Sekar et al., 2020).

Several networks predict what follows a state and an action. Where enough has been seen they agree, whatever is random
there; where they differ, there is something to be learned, and that is the reward.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn

from ..config.schema import Config
from ..losses.disagreement import MEASURES
from ..nn.actions import Policy
from ..nn.ensemble import Ensemble
from ..nn.layers import Layers
from ..nn.scale import RunningMean
from ..world.model import Seen, Window, WorldModel
from ..world.rssm import State
from .behavior import Behavior

RATE = 0.01
"""How fast the mean follows that disagreement is divided by."""

TARGETS: dict[str, Callable[[Seen], Tensor]] = {
    "embed": lambda seen: seen.embed,
    "stoch": lambda seen: seen.state.stoch,
    "deter": lambda seen: seen.state.deter,
    "feature": lambda seen: seen.state.feature,
}
"""What the ensemble predicts of a row, by name."""


class Explorer(Behavior):
    """Actor and critic whose reward is the disagreement of an ensemble, and the ensemble."""

    heavy: ClassVar[tuple[str, ...]] = ("foresee", "returned", "judged", "studied")

    def __init__(self, world: WorldModel, actions: int, policy: Policy, config: Config, make: Layers) -> None:
        # what a dream's first state was worth on arrival is not known, as no action of the dream has led there
        unknown = config.behavior.arrival
        behavior = replace(config.behavior, train_start=config.behavior.train_start and not unknown)
        super().__init__(world.features, policy, behavior, make, config.world.bins)
        self.explore = config.explore
        width = {"stoch": world.rssm.latent.size, "deter": world.rssm.deter, "feature": world.features,
                 "embed": world.encoder.outputs}[self.explore.target]  # fmt: skip
        units = self.explore.units or config.world.units
        self.ensemble = Ensemble(
            make, self.explore.members, world.features + actions, units, self.explore.layers, width
        )
        self.target, self.measure = TARGETS[self.explore.target], MEASURES[self.explore.measure]
        self.usual = RunningMean(RATE)

    def advisers(self, world: WorldModel) -> tuple[nn.Module, ...]:
        """What rewards and values of dreams come from, which dreams do not teach."""
        return *super().advisers(world), self.ensemble

    def foresee(self, world: WorldModel, feature: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Reward, discount and value expected at features (H + 1, ..., F), between which lie actions (H, ..., A).

        What an action finds out is paid with the state that it leads to, as rewards are.
        """
        task, cont, value = super().foresee(world, feature, action)
        novelty = self.novelty(self.measure(self.ensemble(feature[:-1], action)))  # (H, B)
        reward = self.explore.intrinsic * torch.cat([torch.zeros_like(novelty[:1]), novelty])
        if self.explore.extrinsic:
            reward = reward + self.explore.extrinsic * task
        return reward, cont, value

    def novelty(self, disagreement: Tensor) -> Tensor:
        """Disagreement as it is paid: in multiples of its running mean, and as a logarithm, if that is asked for."""
        usual = self.usual(disagreement)
        if self.explore.normalize:
            disagreement = disagreement / usual.clamp(min=1e-8)
        # of 1 more, so that it is never negative: the end of an episode would be worth reaching
        return disagreement.log1p() if self.explore.log else disagreement

    def study(self, seen: Seen, window: Window) -> tuple[Tensor, Tensor]:
        """The ensemble's loss (B, T) at the rows of a window, and its disagreement (B, T) about them.

        Each row is predicted from the state before it and the action that led to it; none leads to a first row.
        """
        parts = (torch.cat([first.unsqueeze(1), later[:, :-1]], 1) for first, later in zip(window.start, seen.state))
        target = self.target(seen).detach().float()
        return self.studied(State(*parts).feature.detach(), window.action, target, ~window.is_first)

    def studied(self, before: Tensor, action: Tensor, target: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
        """The loss and the disagreement (...) of predictions from features and actions (..., n), 0 unless `inside`."""
        guesses = self.ensemble(before, action)
        loss = (guesses - target).square().sum(-1).mean(0)
        return loss * inside, self.measure(guesses.detach()) * inside
