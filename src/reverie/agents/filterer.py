"""Agents that act on the states of a world model, which filters what they see, and that dream on from there."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..config.schema import Config
from ..data.rows import Batch
from ..nn import ranks
from ..nn.actions import ActionCode, ActionDist, Policy
from ..nn.layers import Layers
from ..nn.precision import in_half
from ..world.dream import CONTEXT, Dream, dream, errors, surprise
from ..world.model import Window, WorldModel
from ..world.rssm import State
from .base import MODES, Agent, Media, Mode
from .behavior import Behavior, policy_of
from .noise import ActionNoise
from .windows import check_lengths, window_of

Memory = dict[str, Tensor]
"""What the agent remembers from row to row: `deter` and `stoch` of its state, and the `action` it took there."""
Calculation = Callable[[Batch], Batch]
"""What a GPU can replay as one graph."""


class Filterer(Agent):
    """A world model, and behaviours that act on its states."""

    limit = math.inf
    """Largest magnitude of the outputs of the policy that learns the task."""

    def __init__(self, observation: spaces.Dict, action: spaces.Space, config: Config, device: torch.device) -> None:
        super().__init__()
        world, behavior = config.world, config.behavior
        self.device, self.replay = device, config.replay
        check_lengths(config)
        self.keys = (*observation, "reward", "is_first", "is_last", "is_terminal")
        self.code = ActionCode(action)
        self.world = WorldModel(observation, self.code.size, world, behavior.gamma)
        make = Layers(world.norm, world.activation, world.init)
        policy = policy_of(action, behavior)
        self.behavior = Behavior(self.world.features, policy, behavior, make, world.bins)
        self.behavior.limit = self.limit
        self.policies = {"task": self.behavior} | self._further_policies(policy, config, make)
        """Who may act, by name."""
        self.noise = ActionNoise(self.code, policy, behavior)
        self.to(device)
        self.in_half = in_half(world.precision, device) and (world.precision != "auto" or device.type == "cuda")
        self.generator = torch.Generator(device).manual_seed(config.seed + ranks.number())
        self.acted = 0
        self.acting: dict[tuple[str, Mode], Calculation] = {
            (name, mode): partial(self._act, behavior=each, mode=mode)
            for name, each in self.policies.items()
            for mode in MODES
        }

    def _further_policies(self, policy: Policy, config: Config, make: Layers) -> dict[str, Behavior]:
        """Behaviours besides the one that the task is learned by."""
        return {}

    def actor(self, mode: Mode) -> str:
        """Which of the policies acts."""
        return "task"

    def initial_carry(self, batch: int) -> Memory:
        """The state before the first row."""
        with torch.no_grad():
            state = self.world.rssm.initial(batch)
        return {**state._asdict(), "action": torch.zeros(batch, self.code.size, device=self.device)}

    def published(self) -> list[Tensor]:
        """Weights of encoder, recurrent state and actor, and those of the critic where rows keep values."""
        parts: list[nn.Module] = [self.world.encoder, self.world.rssm, self.behavior.actor]
        parts += [self.behavior.critic] if "value" in self.transient else []
        return [value for part in parts for value in part.state_dict(keep_vars=True).values()]

    @torch.no_grad()
    def act(self, rows: Batch, carry: Memory, mode: Mode) -> tuple[Batch, Memory]:
        """Actions at rows (N, ...), with the latents they were chosen on."""
        before = {f"carry/{name}": value for name, value in carry.items()}
        found = self.acting[self.actor(mode), mode]({key: rows[key] for key in self.keys} | before)
        after = {name: found.pop(f"carry/{name}") for name in carry}
        if mode == "train":
            self.acted += len(found["action"]) * ranks.count()
            if self.acted <= self.replay.prefill:
                found["action"] = self.code.random(len(found["action"]), self.generator)
                after["action"] = self.code.encode(found["action"])
        return found, after

    def _act(self, inputs: Batch, behavior: Behavior, mode: Mode) -> Batch:
        """The columns acting adds to rows, and `carry/...` to remember."""
        before = State(inputs["carry/deter"], inputs["carry/stoch"])
        count, generator = len(before.deter), self.generator
        noise, draw = self.world.rssm.latent.noise((count,), generator), behavior.policy.noise((count,), generator)
        with self._precision():
            state = self.world.filter_step(before, inputs["carry/action"], inputs, noise)
            policy = behavior(state.feature)
            vector = policy.mode() if mode == "eval" else policy.sample(draw)
            if mode == "train":
                kept = self._kept(state, policy, vector)
            else:
                kept = {"value": behavior.critic.pred(state.feature)}
        action = self._explored(vector) if mode == "train" else self.code.decode(vector)
        found = {"action": action} | kept
        after = {"deter": state.deter, "stoch": state.stoch, "action": self.code.encode(action)}
        return found | {f"carry/{name}": part for name, part in after.items()}

    def _kept(self, state: State, policy: ActionDist, vector: Tensor) -> Batch:
        """What rows keep of acting upon them, besides the action."""
        return self._latents(state)

    def _latents(self, state: State) -> Batch:
        """The columns of a state that rows keep: none where windows do not begin at stored latents."""
        if self.replay.start != "stored":
            return {}
        return {"deter": state.deter.bfloat16(), "stoch": self.world.rssm.latent.pack(state.stoch)}

    def _explored(self, vector: Tensor) -> Tensor:
        """Actions while collecting, with what noise the configuration asks for."""
        return self.noise(vector, self.generator)

    def window(self, rows: Batch) -> Window:
        """A sampled batch (B, T + context) as a window to learn from, begun as the configuration says."""
        observed = {key: rows[key] for key in self.keys}
        return window_of(rows, observed, self.code.encode(rows["action"]), self.world.rssm, self.replay.start)

    def report(self, rows: Batch) -> Media:
        """The dream of sampled windows, and how wrong it is."""
        window = self.window(rows)
        found = self._dream(window, min(CONTEXT, window.is_first.shape[1] // 2))
        return Media({f"world/{name}": value for name, value in errors(found).items()}, {"world/dream": found})

    def surprise(self, rows: Batch) -> dict[str, Tensor]:
        """The KL of windows that are new, which is far above that of training where the replay is known by heart."""
        with self._precision():
            found = surprise(self.world, self.window(rows), torch.Generator(self.device).manual_seed(0))
        return {"world/new_kl": found}

    @torch.no_grad()
    def dream(self, rows: Batch, carry: Memory, context: int = CONTEXT) -> Dream:
        """What the world model predicts of rows (B, T) from their first ones; `carry` is from before them."""
        action = self.code.encode(rows["action"])
        led = torch.cat([carry["action"].unsqueeze(1), action[:, :-1]], 1)
        return self._dream(Window(rows, State(carry["deter"], carry["stoch"]), led, rows["is_first"]), context)

    def _dream(self, window: Window, context: int) -> Dream:
        """A dream that draws the same each time and takes nothing from the agent's generator."""
        generator = torch.Generator(self.device).manual_seed(0)
        with self._precision():
            return dream(self.world, window, context, generator, self.behavior.critic)

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.in_half)
