"""A lucid dream: the world model goes on from a real start, step by step, with the actions of a person or of the agent.

Beside the truth, a real episode is played with the same actions, which the model does not get to see.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..agents.base import Agent, Mode
from ..agents.dreamer import Dreamer
from ..agents.filterer import Memory
from ..collect.collector import playable
from ..config.errors import UserError
from ..data.rows import Batch, Rows
from ..envs.rows import RowStream
from ..log.video import downscale, rgb
from ..world.rssm import State

PICTURE = 320
"""Pixels that the longer side of an environment's own picture has at most."""


@dataclass(frozen=True)
class View:
    """How one step looks, in truth or in the dream."""

    images: dict[str, np.ndarray] = field(default_factory=dict)
    """In colour (h, w, 3), in bytes."""
    vectors: dict[str, np.ndarray] = field(default_factory=dict)
    """Numbers as they are, classes as probabilities (n,)."""
    numbers: dict[str, float] = field(default_factory=dict)
    """`reward`, `value` and `continue`, the chance that the episode goes on."""


@dataclass(frozen=True)
class Moment:
    """One step of a dream."""

    seen: bool
    """Whether the model was shown the truth."""
    action: np.ndarray | None
    """What led here; None at the start of an episode."""
    dream: View
    truth: View | None
    """None where no real episode is played along."""
    picture: np.ndarray | None
    """What the real environment draws of itself."""
    over: bool
    """Whether the real episode has ended here."""


class LucidDream:
    """A dream of one episode after another."""

    def __init__(self, agent: Agent, stream: RowStream, context: int, mode: Mode, device: torch.device) -> None:
        if not isinstance(agent, Dreamer):
            raise UserError("this run's agent has no world model, so it cannot dream: take a run of Dreamer")
        self.agent, self.stream, self.context, self.mode, self.device = agent, stream, context, mode, device
        self.beside = False
        self.carry: Memory = agent.initial_carry(1)
        self.chosen: Tensor = agent.code.decode(self.carry["action"])
        self.state = State(self.carry["deter"], self.carry["stoch"])

    @torch.inference_mode()
    def begin(self, beside: bool) -> list[Moment]:
        """The first steps of a new episode, which the model sees; `beside` goes on with it while the model dreams."""
        self.carry = self.agent.initial_carry(1)
        rows, led = self.stream.anew(), None
        moments: list[Moment] = []
        while True:
            truth = self._look(rows)
            self.state = State(self.carry["deter"], self.carry["stoch"])
            over = bool(rows["is_last"][0])
            moments.append(Moment(True, led, self._dreamt(), truth, self._picture(), over))
            if over or len(moments) == self.context:
                break
            led = playable(self.chosen, self.stream.action_space)
            rows, led = self.stream.step(led), led[0]
        self.beside = beside and not over
        return moments

    @torch.inference_mode()
    def step(self, action: np.ndarray | None) -> Moment:
        """The next step, with a person's action (...) or, if that is None, the agent's."""
        if action is not None:
            chosen = torch.as_tensor(np.array(action)[None]).to(self.device)
        else:
            chosen = self.chosen if self.beside else self._policy()
        led = playable(chosen, self.stream.action_space)
        self.carry["action"] = self.agent.code.encode(chosen)
        rssm = self.agent.world.rssm
        self.state = rssm.step(self.state, self.carry["action"], rssm.latent.noise((1,), self.agent.generator))
        truth, over = None, False
        if self.beside:
            rows = self.stream.step(led)
            truth, over = self._look(rows), bool(rows["is_last"][0])
        moment = Moment(False, led[0], self._dreamt(), truth, self._picture() if truth else None, over)
        self.beside = self.beside and not over
        return moment

    def _look(self, rows: Rows) -> View:
        """What is true at a row; the agent remembers it and chooses what it would do."""
        batch = {key: torch.from_numpy(np.array(value)).to(self.device) for key, value in rows.items()}
        added, self.carry = self.agent.act(batch, self.carry, self.mode)
        self.chosen = added["action"]
        reward = batch["reward"].tanh() if self.agent.world.config.reward_target == "tanh" else batch["reward"]
        numbers = {"reward": reward, "value": added["value"], "continue": (~batch["is_terminal"]).float()}
        return View(*self._observed(batch), {name: float(value) for name, value in numbers.items()})

    def _observed(self, batch: Batch) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """Images and vectors of a row as the decoder shows them; all images of a model that has none."""
        decoder, encoder = self.agent.world.decoder, self.agent.world.encoder
        images, form = (encoder.images, encoder.form) if decoder is None else (decoder.images, decoder.form)
        vectors = {key: form.number(batch, key) for key in form.numbers}
        vectors |= {key: form.one_hots(batch, key) for key in form.classes}
        return {key: _bytes(batch[key]) for key in images}, {key: _floats(value) for key, value in vectors.items()}

    def _dreamt(self) -> View:
        """How the state looks to the model."""
        world, state = self.agent.world, self.state
        reward, cont = world.reward(state.feature), world.cont(state.feature) / world.gamma
        numbers = {"reward": reward, "value": self.agent.behavior.critic.pred(state.feature), "continue": cont}
        told = {name: float(number) for name, number in numbers.items()}
        if world.decoder is None:
            return View(numbers=told)
        found = world.decoder(state)
        images = {key: _bytes((found[key].float().clamp(0, 1) * 255).round()) for key in world.decoder.images}
        return View(images, {key: _floats(found[key]) for key in world.decoder.vectors}, told)

    def _policy(self) -> Tensor:
        """What the agent does at the state."""
        policy = self.agent.behavior(self.state.feature)
        vector = policy.mode() if self.mode == "eval" else policy.sample(policy.noise(self.agent.generator))
        return self.agent.code.decode(vector)

    def _picture(self) -> np.ndarray | None:
        """What the environment draws, where its observation is no image."""
        if self.agent.world.encoder.images:
            return None
        drawn = self.stream.pictures(1)[0]
        return None if drawn is None else downscale(rgb(np.asarray(drawn)[None]), PICTURE)[0]


def _bytes(image: Tensor) -> np.ndarray:
    return rgb(image.byte().cpu().numpy())[0]


def _floats(values: Tensor) -> np.ndarray:
    return values[0].float().cpu().numpy()
