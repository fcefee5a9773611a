"""PPO on vectors as programs for a CPU: a whole gradient step without Python between its operations."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import partial
from types import MethodType
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..data.rows import Batch
from ..nn.heads import PolicyHead
from ..nn.native.back import Returning
from ..nn.native.descent import Descent
from ..nn.native.machine import Unfit, ours, plainly
from ..nn.native.program import Kind, Program
from ..nn.optim import BETAS, FlatAdam
from .actor_critic import ActorCritic

if TYPE_CHECKING:
    from .ppo import PPO

PAST = ("logp", "value", "advantage", "target", "weight")
"""What a row was collected with, in the order of policies.h."""

TOLD, MEASURED = 5, 7
"""Numbers that a row and a step tell, in the order of PPO's metrics and as many as epochs.h has."""


class Facts(ctypes.Structure):
    """What a step goes by, as policies.h has it."""

    _fields_ = [
        (name, ctypes.c_float) for name in ("clip", "value_clip", "value_scale", "bonus", "mean", "scale", "share")
    ]


class Epoch(ctypes.Structure):
    """An epoch, as epochs.h has it."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("rows", "order")),
        *((name, ctypes.c_long) for name in ("count", "width", "parts")),
        *((name, ctypes.c_void_p) for name in ("batch", "told", "sums")),
        *((name, ctypes.c_long) for name in ("room", "normalize")),
        *((name, ctypes.c_void_p) for name in ("facts", "step", "taken")),
        ("most", ctypes.c_float),
        *((name, ctypes.c_double) for name in ("mean_kept", "size_kept")),
        ("measured", ctypes.c_void_p),
    ]


def actions_of(net: ActorCritic) -> int:
    """How many numbers an action has; `Unfit` if there is no program for the network."""
    ours(net, ActorCritic)
    ours(net.policy, PolicyHead)
    if net.image_keys or net.policy.joint:
        raise Unfit("there are programs for vectors alone, and for actions of one kind")
    return net.policy.sizes[0] if net.policy.continuous else len(net.policy.sizes)


class Answer:
    """The columns of what a network makes of its inputs: outputs for the policy, deviations, the value."""

    def __init__(self, program: Program, net: ActorCritic, x: int) -> None:
        inputs, policy, count = [(x, net.vectors.size)], net.policy, actions_of(net)
        self.outputs, _ = program.dense(inputs, nn.Sequential(net.actor, policy.linear))
        self.value, _ = program.dense(inputs, nn.Sequential(net.critic, net.value))
        self.spreads, self.sizes = x, None
        if policy.continuous:  # a layer without inputs, whose biases they are
            self.spreads = program.columns(count)
            program.blocks(x, self.spreads, torch.empty(1, 0, count), policy.log_std, False, (0, 0))
        else:
            self.sizes = (ctypes.c_long * count)(*policy.sizes)
        self.fields = {"a": self.outputs, "d": self.spreads, "groups": count}
        """What an operation on it is told."""
        if self.sizes is not None:
            self.fields["sizes"] = ctypes.addressof(self.sizes)


class NativeActing:
    """Does what PPO's `_act` does when it collects."""

    def __init__(self, agent: PPO) -> None:
        self.agent, self.net, self.actions = agent, agent.net, actions_of(agent.net)
        self.program = program = Program()
        x, noise = program.load("x", self.net.vectors.size), program.load("noise", self.actions)
        self.answer = Answer(program, self.net, x)
        actions, logp = program.columns(self.actions), program.columns(1)
        program.add(Kind.CHOOSE, b=noise, c=actions, e=logp, **self.answer.fields)
        program.store("action", actions, self.actions)
        program.store("logp", logp, 1)
        program.store("value", self.answer.value, 1)
        program.finish()

    def __reduce__(self) -> tuple[Callable[..., object], tuple[PPO]]:
        """A copy of the agent acts by itself."""
        return plain_acting, (self.agent,)

    def __call__(self, rows: Batch) -> Batch:
        """Action, its log-probability and the value at rows (...)."""
        if self.program.moved():  # by someone who acts with weights that others learn
            return self.agent._act(rows, "train")
        x, lead = self.net.vectors(rows), rows["is_first"].shape
        count, policy = lead.numel(), self.net.policy
        action, logp, value = (torch.empty(count, size) for size in (self.actions, 1, 1))
        x, noise = x.reshape(count, -1).contiguous(), self._noise(count)
        self.program.run({"x": x, "noise": noise, "action": action, "logp": logp, "value": value}, count)
        action = action if policy.continuous else action.long()
        action = action.reshape(lead if policy.single else (*lead, -1))
        return {"action": action, "logp": logp.reshape(lead), "value": value.reshape(lead)}

    def _noise(self, count: int) -> Tensor:
        """The numbers that the policy's distribution would draw."""
        generator = self.agent.generator
        if self.net.policy.continuous:
            return torch.randn((count, self.actions), generator=generator)
        parts = [torch.rand((count, 1), generator=generator) for _ in range(self.actions)]
        return torch.cat(parts, -1) if len(parts) > 1 else parts[0]


def plain_acting(agent: PPO) -> Callable[[Batch], Batch]:
    """Acting without a program."""
    return partial(agent._act, mode="train")


class Step(Returning):
    """The gradients of one step: through the network, its losses, and back again."""

    def __init__(self, net: ActorCritic, facts: Facts) -> None:
        super().__init__(list(net.parameters()))
        self.rows = net.vectors.size + actions_of(net) + len(PAST)
        """Numbers of a row."""
        x = self.load("rows", self.rows)
        self.answer = answer = Answer(self, net, x)
        forward, shift = list(self.ops), self.width
        self.width *= 2
        told, past, where = self.columns(TOLD), x + net.vectors.size, ctypes.addressof(facts)
        self.add(Kind.SURROGATE, b=answer.value, c=past, e=told, f=shift, weight=where, **answer.fields)
        self.store("told", told, TOLD)
        self.differentiate(forward, shift, [answer.outputs, answer.value, answer.spreads], (x,))
        self.finish()


class NativeEpochs:
    """Does what PPO's `_epochs` does; by one thread, as rows are few."""

    def __init__(self, agent: PPO) -> None:
        self.agent, self.optimizer, config = agent, agent.optimizer, agent.config
        ours(self.optimizer, FlatAdam)
        self.facts = Facts(
            value_clip=config.value_clip, value_scale=config.value_scale, bonus=config.entropy, scale=1.0
        )
        self.step = Step(agent.net, self.facts)
        self.sizes = (ctypes.c_long * 1)(self.optimizer.flat.numel())
        places = {name: getattr(self.optimizer, name).data_ptr() for name in ("flat", "gradient", "mean", "square")}
        self.descent = Descent(
            **places, sizes=ctypes.addressof(self.sizes), count=1, by_mean=1 - BETAS[0], by_square=1 - BETAS[1],
            eps=self.optimizer.eps,
        )  # fmt: skip
        self.plan = Epoch(
            width=self.step.rows, normalize=int(config.normalize_advantage), facts=ctypes.addressof(self.facts),
            step=ctypes.addressof(self.descent), taken=self.optimizer.count.data_ptr(), most=config.grad_norm,
            mean_kept=BETAS[0], size_kept=BETAS[1],
        )  # fmt: skip

    def __reduce__(self) -> tuple[Callable[..., MethodType], tuple[PPO, str]]:
        """A copy of the agent learns by itself."""
        return plainly, (self.agent, "_epochs")

    def __call__(self, batch: Batch) -> Callable[[Tensor, int], Tensor]:
        """Epochs over rows (B, ...)."""
        net = self.agent.net
        x, action = net.vectors(batch), batch["action"].reshape(len(batch["weight"]), -1)
        if not net.policy.continuous and ((action < 0) | (action >= torch.tensor(net.policy.sizes))).any():
            raise IndexError("an action is none of those there are to choose from")
        columns = [x, action, *(batch[name].unsqueeze(1) for name in PAST)]
        return partial(self._epoch, torch.cat([column.float() for column in columns], 1))

    def _epoch(self, rows: Tensor, order: Tensor, parts: int) -> Tensor:
        """Steps on so many shares of rows in that order: what was measured, and whether they were made (parts, 7)."""
        step, plan = self.step, self.plan
        most = -(-len(rows) // parts)
        room, told, measured = torch.empty(most, step.rows), torch.empty(most, TOLD), torch.empty(parts, MEASURED)
        array = step.bound({"rows": room, "told": told}, most, 1)
        sums = step.summed(array, self.optimizer.views, 1)
        self.facts.clip, self.descent.rate = float(self.agent.clip), float(self.optimizer.lr)
        plan.rows, plan.order, plan.count, plan.parts = rows.data_ptr(), order.data_ptr(), len(rows), parts
        plan.batch, plan.told, plan.measured = room.data_ptr(), told.data_ptr(), measured.data_ptr()
        plan.sums, plan.room = sums.data_ptr(), sums.numel()
        if step.library.epoch(array, len(array), step.manner(most), ctypes.byref(plan)):
            raise MemoryError("no memory for a program of layers")
        return measured
