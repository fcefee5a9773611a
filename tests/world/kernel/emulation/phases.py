"""What the kernels do, phase by phase and under the same names, in plain PyTorch on any device.

In float32 it is exact and is compared with `RSSM.scan` and autograd. With `half` it rounds to bfloat16 where the
kernels do, and is what their intermediate values are compared with.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from reverie.world.kernel.persistent import PRODUCTS, VECTORS
from reverie.world.kernel.program import Found
from reverie.world.kernel.shape import Shape
from reverie.world.rssm import RSSM, State

EPS = 1e-4


def weights_of(rssm: RSSM) -> Found:
    """The weights under their names in the kernels."""
    all_weights = dict(rssm.named_parameters())
    return {name: all_weights[theirs].detach() for name, theirs in (PRODUCTS | VECTORS).items()}


def tail(x: Tensor, scale: Tensor) -> Tensor:
    """Norm, scale, activation."""
    return torch.nn.functional.silu(x * (x.square().mean(-1, keepdim=True) + EPS).rsqrt() * scale)


def silu_slope(x: Tensor) -> Tensor:
    """Derivative of the activation."""
    s = x.sigmoid()
    return s * (1 + x * (1 - s))


def tail_back(grad: Tensor, x: Tensor, scale: Tensor) -> Tensor:
    """From the gradient of `tail` to that of x."""
    r = (x.square().mean(-1, keepdim=True) + EPS).rsqrt()
    grad = grad * silu_slope(x * r * scale) * scale
    return r * (grad - x * r * (grad * x * r).mean(-1, keepdim=True))


class Phases:
    """The phases of both kernels."""

    def __init__(self, shape: Shape, weights: Found, half: bool = False) -> None:
        self.shape = shape
        self.round: Callable[[Tensor], Tensor] = (lambda x: x.bfloat16().float()) if half else (lambda x: x)
        self.w = {name: self.round(w.float()) if name in PRODUCTS else w.float() for name, w in weights.items()}

    def forward(self, start: State, first: Tensor, acted: Tensor, embedded: Tensor, noise: Tensor) -> Found:
        """All values (T, B, ...) of all phases; inputs are steps first."""
        f: dict[str, list[Tensor]] = defaultdict(list)
        deter, half, drawn = start.deter, self.round(start.deter), self.round(start.stoch)
        for t in range(len(first)):
            parts = self.project(half)
            f["summary"].append(self.summarise(parts))
            f["latent"].append(self.embed(drawn))
            reset = first[t].unsqueeze(-1)
            mixed, power = self.mix(half, f["summary"][t], f["latent"][t], acted[t], reset)
            deter, gates, scale = self.advance(mixed, power, deter, reset)
            half = self.round(deter)
            params, drawn, seen = self.infer(self.project(half), embedded[t], noise[t])
            found = {"mixed": mixed, "scale": scale, "gates": gates, "seen": seen, "params": params}
            for name, value in (found | {"deter": deter, "stoch": drawn}).items():
                f[name].append(value)
        return {name: torch.stack(values) for name, values in f.items()}

    def project(self, half: Tensor) -> Tensor:
        """A state times the weights of posterior and next summary side by side, by parts (P, B, 2 hidden)."""
        joined = torch.cat([self.w["w_seen"], self.w["w_summary"]])  # (2 hidden, D)
        cut = zip(half.chunk(self.shape.parts, -1), joined.chunk(self.shape.parts, -1))
        return torch.stack([x @ w.T for x, w in cut])

    def summarise(self, parts: Tensor) -> Tensor:
        """The summary of a state, without bias (B, hidden)."""
        return parts.sum(0)[:, self.shape.hidden :]

    def embed(self, drawn: Tensor) -> Tensor:
        """The projection of a latent, without bias (B, hidden)."""
        return drawn @ self.w["w_latent"].T

    def inputs(self, summary: Tensor, latent: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Projections of state and latent as norms see them; those of zeros where an episode begins."""
        return (summary.masked_fill(reset, 0) + self.w["b_summary"], latent.masked_fill(reset, 0) + self.w["b_latent"])

    def mix(self, half: Tensor, summary: Tensor, latent: Tensor, acted: Tensor, reset: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of mix (B, D), and the sums of their squares that each CTA adds up (B, CTAs)."""
        state = half.masked_fill(reset, 0).unflatten(-1, (self.shape.blocks, -1))  # (B, g, D / g)
        x, y = self.inputs(summary, latent, reset)
        shared = [self.round(tail(x, self.w["n_summary"])), self.round(tail(y, self.w["n_latent"])), acted]
        joined = torch.cat([state, torch.cat(shared, -1).unsqueeze(1).expand(-1, self.shape.blocks, -1)], -1)
        mixed = self.round((torch.einsum("bgi,gio->bgo", joined, self.w["w_mix"]) + self.w["b_mix"]).flatten(1))
        return mixed, mixed.square().unflatten(-1, (-1, self.shape.tile)).sum(-1)

    def advance(self, mixed: Tensor, power: Tensor, deter: Tensor, reset: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The next state (B, D), gates (B, g, 3 D / g) and the scale of the norm (B,)."""
        scale = (power.sum(-1) / self.shape.deter + EPS).rsqrt()
        x = self.round(torch.nn.functional.silu(mixed * scale.unsqueeze(-1) * self.w["n_mix"]))
        x = x.unflatten(-1, (self.shape.blocks, -1))
        gates = self.round(torch.einsum("bgi,gio->bgo", x, self.w["w_gates"]) + self.w["b_gates"])
        before = deter.masked_fill(reset, 0)
        _, _, candidate, update = self.opened(gates)
        return before + update * (candidate - before), gates, scale

    def opened(self, gates: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reset gate, the candidate's input, candidate and update gate (B, D)."""
        reset, gate, update = (x.flatten(-2) for x in gates.chunk(3, -1))
        return reset.sigmoid(), gate, torch.tanh(reset.sigmoid() * gate), (update - 1).sigmoid()

    def infer(self, parts: Tensor, embedded: Tensor, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Log-probabilities (B, S, K), draw (B, Z) and the first layer of the posterior (B, hidden)."""
        seen = parts.sum(0)[:, : self.shape.hidden] + self.w["b_seen"] + embedded
        logits = self.round(tail(seen, self.w["n_seen"])) @ self.w["w_logits"].T + self.w["b_logits"]
        soft = logits.unflatten(-1, (self.shape.groups, self.shape.classes)).softmax(-1)
        params = torch.log((1 - self.shape.unimix) * soft + self.shape.unimix / self.shape.classes)
        below = params.exp().cumsum(-1)
        chosen = (below < noise.reshape(*soft.shape[:-1], 1) * below[..., -1:]).sum(-1)
        return params, torch.nn.functional.one_hot(chosen, self.shape.classes).float().flatten(-2), seen

    def reverse(self, f: Found, start: State, first: Tensor, goals: tuple[Tensor, Tensor, Tensor]) -> State:
        """Total gradients of all states (T, B, ...)."""
        by_deter, by_stoch, by_params = goals
        carried, shared = torch.zeros_like(start.deter), None
        totals = State(torch.empty_like(by_deter), torch.empty_like(by_stoch))
        for t in reversed(range(len(first))):
            totals.stoch[t], totals.deter[t] = by_stoch[t], by_deter[t] + carried
            if shared is not None:  # what step t + 1 found
                reset = first[t + 1].unsqueeze(-1)
                totals.stoch[t] += self.undraw(shared, f["latent"][t + 1], reset)
                totals.deter[t] += self.unsummarise(shared, f["summary"][t + 1], reset) @ self.w["w_summary"]
            d_inferred = self.uninfer(self.undraw_logits(totals.stoch[t], by_params[t], f["params"][t]))
            reset = first[t].unsqueeze(-1)
            before = (f["deter"][t - 1] if t else start.deter).masked_fill(reset, 0)
            d_gates, past = self.ungate(totals.deter[t], d_inferred, f["seen"][t], f["gates"][t], before)
            tilted, lean = self.tilt(d_gates, f["mixed"][t], f["scale"][t])
            shared, carried = self.unmix(tilted, lean, f["mixed"][t], f["scale"][t], past, reset)
        return totals

    def undraw(self, shared: Tensor, latent: Tensor, reset: Tensor) -> Tensor:
        """What step t + 1 adds to the gradient of latent t (B, Z)."""
        _, x = self.inputs(latent, latent, reset)
        grad = tail_back(shared.sum(0)[:, self.shape.hidden :], x, self.w["n_latent"]).masked_fill(reset, 0)
        return self.round(grad) @ self.w["w_latent"]

    def undraw_logits(self, total: Tensor, by_params: Tensor, params: Tensor) -> Tensor:
        """Gradient of the logits (B, Z)."""
        prob, mix = params.exp(), self.shape.unimix
        soft = (prob - mix / self.shape.classes) / (1 - mix)
        grad = (1 - mix) * (by_params / prob + total.view_as(params))
        return self.round((soft * (grad - (soft * grad).sum(-1, keepdim=True))).flatten(-2))

    def unsummarise(self, shared: Tensor, summary: Tensor, reset: Tensor) -> Tensor:
        """Gradient of the summary that step t + 1 made of state t (B, hidden)."""
        x, _ = self.inputs(summary, summary, reset)
        grad = tail_back(shared.sum(0)[:, : self.shape.hidden], x, self.w["n_summary"]).masked_fill(reset, 0)
        return self.round(grad)

    def uninfer(self, d_logits: Tensor) -> Tensor:
        """Gradient of the posterior's activated first layer (B, hidden)."""
        return d_logits @ self.w["w_logits"]

    def ungate(
        self, later: Tensor, d_inferred: Tensor, seen: Tensor, gates: Tensor, before: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the gates (B, g, 3 D / g), and of the state before, past the gates."""
        grad = later + self.round(tail_back(d_inferred, seen, self.w["n_seen"])) @ self.w["w_seen"]
        reset, gate, candidate, update = self.opened(gates)
        inner = grad * update * (1 - candidate.square())
        each = (inner * gate * reset * (1 - reset), inner * reset, grad * (candidate - before) * update * (1 - update))
        d_gates = torch.cat([x.unflatten(-1, (self.shape.blocks, -1)) for x in each], -1)
        return self.round(d_gates), grad * (1 - update)

    def tilt(self, d_gates: Tensor, mixed: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """Gradient of mix's normalised outputs (B, D), and what each CTA adds up of it (B, CTAs)."""
        x = mixed * scale.unsqueeze(-1)
        grad = torch.einsum("bgo,gio->bgi", d_gates, self.w["w_gates"]).flatten(1)
        tilted = self.round(grad * silu_slope(x * self.w["n_mix"]) * self.w["n_mix"])
        return tilted, (tilted * x).unflatten(-1, (-1, self.shape.tile)).sum(-1)

    def unmix(
        self, tilted: Tensor, lean: Tensor, mixed: Tensor, scale: Tensor, past: Tensor, reset: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradients of activated summary and latent, by parts (P, B, 2 hidden), and of the state before (B, D)."""
        scale, mean = scale.unsqueeze(-1), lean.sum(-1, keepdim=True) / self.shape.deter
        grad = self.round(scale * (tilted - mixed * scale * mean)).unflatten(-1, (self.shape.blocks, -1))
        block, hidden = self.shape.block, self.shape.hidden
        of_state, of_shared = self.w["w_mix"][:, :block], self.w["w_mix"][:, block : block + 2 * hidden]
        each = torch.einsum("bgo,gio->gbi", grad, of_shared)
        shared = each.unflatten(0, (self.shape.parts, -1)).sum(1)
        carried = past + torch.einsum("bgo,gio->bgi", grad, of_state).flatten(1)
        return shared, carried.masked_fill(reset, 0)
