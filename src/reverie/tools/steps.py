"""One step of acting as a module of its own: tensors by name in and out, nothing remembered inside.

What an agent carries from row to row comes out as `deter`, `stoch` and `action` and goes in as `carry_deter`,
`carry_stoch` and `carry_action` one step later. The random numbers that samples are made of go in too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from gymnasium import spaces
from torch import Tensor, nn

from ..agents.base import Agent
from ..agents.dreamer import Dreamer
from ..agents.ppo import PPO
from ..config.errors import UserError
from ..data.rows import Batch
from ..envs.form import is_image
from ..envs.joint import parts_of
from ..world.rssm import State

CARRIED = "{} of the step before; at the first step of an episode anything of that shape"
UNIFORM, NORMAL = "uniform from 0 to 1", "standard normal"
MEANINGS = {
    "action": "what to do",
    "value": "the discounted return that the agent expects from here",
    "deter": "to go in as carry_deter at the next step",
    "stoch": "to go in as carry_stoch at the next step",
}


@dataclass(frozen=True)
class Port:
    """A tensor that goes in or comes out; its shape is without the leading batch."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    meaning: str

    def zeros(self, batch: int) -> Tensor:
        """An example of it."""
        return torch.zeros(batch, *self.shape, dtype=getattr(torch, self.dtype))


def like(name: str, example: Tensor, meaning: str) -> Port:
    """The port of tensors such as an example (B, ...)."""
    return Port(name, tuple(example.shape[1:]), str(example.dtype).removeprefix("torch."), meaning)


class Step(nn.Module):
    """Observations and `is_first` in, actions within their bounds out."""

    low: Tensor
    high: Tensor

    def __init__(self, observation: spaces.Dict, action: spaces.Space, stochastic: bool) -> None:
        super().__init__()
        self.stochastic = stochastic
        self.bounded = isinstance(action, spaces.Box)
        if isinstance(action, spaces.Box):
            self.register_buffer("low", torch.from_numpy(action.low.copy()))
            self.register_buffer("high", torch.from_numpy(action.high.copy()))
        self.inputs = [observation_port(key, space) for key, space in observation.items()]
        self.inputs.append(Port("is_first", (), "bool", "true at the first step of an episode"))
        if stochastic:
            self.inputs.append(action_noise(action))

    def forward(self, inputs: Batch) -> Batch:
        """What comes out by name, for a batch of environments."""
        found = self.acted(inputs)
        if self.bounded:
            found["action"] = found["action"].clamp(self.low, self.high)
        return found

    def acted(self, inputs: Batch) -> Batch:
        """The same, with actions that may lie beyond their bounds."""
        raise NotImplementedError

    def examples(self, batch: int) -> Batch:
        """Inputs of the right shapes."""
        return {each.name: each.zeros(batch) for each in self.inputs}

    @torch.no_grad()
    def outputs(self) -> list[Port]:
        """What comes out, found by trying."""
        return [like(name, value, MEANINGS[name]) for name, value in self(self.examples(1)).items()]


def observation_port(key: str, space: spaces.Space) -> Port:
    """How an observation goes in."""
    meaning = "numbers as the environment shows them"
    if is_image(space):
        meaning = "an image: height, width, channels, from 0 to 255"
    elif isinstance(space, spaces.Discrete):
        meaning = f"a class below {int(space.n)}"
    elif isinstance(space, spaces.MultiDiscrete):
        meaning = f"classes below {space.nvec.tolist()}"
    elif isinstance(space, spaces.MultiBinary):
        meaning = "zeros and ones"
    return Port(key, tuple(space.shape or ()), str(space.dtype), meaning)


def action_noise(space: spaces.Space) -> Port:
    """The random numbers that actions are drawn with: one for each choice and each continuous number."""
    parts = [(math.prod(part.shape or ()), isinstance(part, spaces.Box)) for part in parts_of(space)]
    kinds = ", then ".join(f"{width} {NORMAL if normal else UNIFORM}" for width, normal in parts)
    return Port("action_noise", (sum(width for width, _ in parts),), "float32", f"random numbers: {kinds}")


class PPOStep(Step):
    """PPO carries nothing."""

    def __init__(self, agent: PPO, observation: spaces.Dict, action: spaces.Space, stochastic: bool) -> None:
        super().__init__(observation, action, stochastic)
        self.net = agent.net

    def acted(self, inputs: Batch) -> Batch:
        """Action and value."""
        policy, value = self.net(inputs)
        return {"action": policy.sample(inputs["action_noise"]) if self.stochastic else policy.mode(), "value": value}


class DreamerStep(Step):
    """Dreamer, whatever its actor learns from, carries its state and its last action."""

    no_noise: Tensor

    def __init__(self, agent: Dreamer, observation: spaces.Dict, action: spaces.Space, stochastic: bool) -> None:
        world, behavior, code = agent.world, agent.behavior, agent.code
        seen = (*world.encoder.images, *world.encoder.form.numbers, *world.encoder.form.classes)
        super().__init__(spaces.Dict({key: observation[key] for key in seen}), action, stochastic)
        # registered is what acting takes: the file holds no decoder
        self.encoder, self.rssm, self.actor, self.critic = world.encoder, world.rssm, behavior.actor, behavior.critic
        self.policy, self.encode, self.decode = behavior.forward, code.encode, code.decode
        for name, buffer in code.named_buffers():
            self.register_buffer("code_" + name.replace(".", "_"), buffer)
        carried = world.rssm.initial(1)._asdict() | {"action": code.decode(torch.zeros(1, code.size))}
        self.inputs += [like(f"carry_{name}", value, CARRIED.format(name)) for name, value in carried.items()]
        noise = world.rssm.latent.noise((1,), torch.Generator())
        self.register_buffer("no_noise", torch.zeros_like(noise))
        if stochastic:
            kind = UNIFORM if world.config.latent == "categorical" else NORMAL
            self.inputs.append(like("latent_noise", noise, f"random numbers: {kind}"))

    def acted(self, inputs: Batch) -> Batch:
        """Action and value, and the state they were chosen on; without noise all that is drawn is the likeliest."""
        rssm, is_first = self.rssm, inputs["is_first"]
        before = State(inputs["carry_deter"], inputs["carry_stoch"])
        led = rssm.cell.embed(self.encode(inputs["carry_action"]).masked_fill(is_first.unsqueeze(-1), 0))
        noise = inputs["latent_noise"] if self.stochastic else self.no_noise
        state, inferred = rssm.filter(before, is_first, led, rssm.embed_in(self.encoder(inputs)), noise)
        if not self.stochastic:
            state = State(state.deter, rssm.latent.mode(inferred))
        policy = self.policy(state.feature)
        vector = policy.sample(inputs["action_noise"]) if self.stochastic else policy.mode()
        return {"action": self.decode(vector), "value": self.critic.pred(state.feature), **state._asdict()}


def make_step(agent: Agent, observation: spaces.Dict, action: spaces.Space, stochastic: bool) -> Step:
    """The acting step of an agent that has learned something."""
    agent.requires_grad_(False)
    if isinstance(agent, Dreamer):
        return DreamerStep(agent, observation, action, stochastic)
    if isinstance(agent, PPO):
        return PPOStep(agent, observation, action, stochastic)
    raise UserError("this run's agent acts at random, which leaves nothing to export: take a run of PPO or Dreamer")
