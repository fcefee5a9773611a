"""Inside a world model: what it knows, how surprised it is, what it dreams, and for how long a dream can be trusted.

    python examples/world_model.py [steps]

A Dreamer learns CartPole for about a minute. That is too short to balance the pole, but enough to look inside: the
program plays one episode and lets the model see its beginning, row by row. Then the model closes its eyes. It is told
the actions that were taken, and predicts what they led to. The picture, dream.png in the run's folder, shows both.

`reverie dream --logdir DIR` makes films of the same; docs/algorithms.md explains the words.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import torch
from PIL import Image, ImageDraw
from torch import Tensor

import reverie
from reverie.tools.player import Player
from reverie.world.model import WorldModel
from reverie.world.rssm import State

SEEN, DREAMS, EPISODES = 5, 20, 10
NAMES = ("place of the cart", "its speed", "angle of the pole", "its speed")


def main(steps: int = 2_000) -> None:
    """Train, play, look, dream, and compare."""
    # Nobody has to act well here, so the behaviour gets little: two starts a window, dreams of two steps.
    short = {
        "replay__warmup": 256,
        "behavior__starts": 2,
        "behavior__horizon": 2,
        "run__eval_every": 0,
        "run__eval_at_end": False,
    }
    outcome = reverie.train(reverie.configure("cartpole", run__steps=steps, **short))
    player = reverie.load(outcome.logdir, checkpoint="latest")
    world: WorldModel = player.agent.world
    torch.manual_seed(0)

    pairs = []
    for seed in range(EPISODES):
        truth, actions = episode(player, seed)  # (T, 4) and (T, A): the action of a row is chosen on seeing it
        with torch.no_grad():
            state, surprise = look(world, truth[:SEEN], actions)
            pairs.append((truth, dream(world, state, actions[SEEN - 1 : -1])))  # (T - SEEN, DREAMS, 4)
    print(f"\nsurprise at the rows of the last episode, in nats: {', '.join(f'{nats:.2f}' for nats in surprise)}")
    compare(pairs)
    path = outcome.logdir / "dream.png"
    draw(*pairs[-1], path)
    print(f"\n{path}: the truth in white, {DREAMS} dreams of it in orange, from where the model closed its eyes")


def episode(player: Player, seed: int) -> tuple[Tensor, Tensor]:
    """Observations (T, 4) and actions (T, A) of an episode, with actions drawn from the policy."""
    observations, actions = [], []
    with player.make_env() as env:
        observation, _ = env.reset(seed=seed)
        player.reset()
        ended = False
        while not ended:
            action = player.act(observation, stochastic=True)
            observations.append(torch.from_numpy(player.seen["vector"]))
            actions.append(player.agent.code.encode(torch.as_tensor(action).reshape(1))[0])
            observation, _, terminated, truncated, _ = env.step(action)
            ended = terminated or truncated
    return torch.stack(observations), torch.stack(actions)


def look(world: WorldModel, seen: Tensor, actions: Tensor) -> tuple[State, list[float]]:
    """The state after the model has seen some rows, one after the other, and how surprised it was by each."""
    rssm, surprise = world.rssm, []
    state, before = rssm.initial(1), torch.zeros_like(actions[:1])
    for row, observation in enumerate(seen):
        first = torch.tensor([row == 0])
        embedding = world.encoder({"vector": observation[None], "is_first": first})
        shares = rssm.shares(embedding, before, first)  # what action and observation add to the layers of the filter
        state, posterior = rssm.filter(state, first, *shares, rssm.latent.noise((1,), generator()))
        # The prior is what the deterministic state alone expects; the posterior has seen the observation, too.
        surprise.append(rssm.latent.kl(posterior, rssm.prior(state.deter)).item())
        before = actions[row : row + 1]
    return state, surprise


def dream(world: WorldModel, state: State, actions: Tensor) -> Tensor:
    """Observations (T, DREAMS, 4) that the model expects, if these actions (T, A) are taken from a state on."""
    state = State(*(part.expand(DREAMS, -1) for part in state))  # from one present, several futures
    expected = []
    for action in actions:
        noise = world.rssm.latent.noise((DREAMS,), generator())
        state = world.rssm.step(state, action.expand(DREAMS, -1), noise)
        expected.append(world.decoder(state)["vector"])
    return torch.stack(expected)


def generator() -> torch.Generator:
    """The source of random numbers."""
    return torch.default_generator


def compare(pairs: list[tuple[Tensor, Tensor]]) -> None:
    """Print how far dreams are from the truth, and how far a model would be that says: nothing moves."""
    print("\nsteps ahead  error of dreams  if nothing moved  dreams lie apart by")
    for ahead in (1, 2, 4, 8, 16):
        long = [(truth, dreamt[ahead - 1]) for truth, dreamt in pairs if len(dreamt) >= ahead]
        if long:
            wrong = mean((dreamt.mean(0) - truth[SEEN + ahead - 1]).abs().mean() for truth, dreamt in long)
            still = mean((truth[SEEN - 1] - truth[SEEN + ahead - 1]).abs().mean() for truth, _ in long)
            apart = mean(dreamt.std(0).mean() for _, dreamt in long)
            print(f"{ahead:11}  {wrong:15.2f}  {still:16.2f}  {apart:19.2f}")


def mean(values: Iterable[Tensor]) -> float:
    """The mean of some numbers."""
    return torch.stack(list(values)).mean().item()


def draw(truth: Tensor, dreamt: Tensor, path: Path) -> None:
    """Write a picture with one chart for each number of the observation."""
    width, height = 480, 120
    image = Image.new("RGB", (width, height * len(NAMES)), (20, 20, 24))
    pen = ImageDraw.Draw(image)
    for number, name in enumerate(NAMES):
        top = number * height
        both = torch.cat([truth[:, number], dreamt[:, :, number].flatten()])
        low, high = both.min().item(), both.max().item() + 1e-6

        def point(row: int, value: float, top: int = top, low: float = low, high: float = high) -> tuple[float, float]:
            return (row / (len(truth) - 1) * width, top + height - 10 - (value - low) / (high - low) * (height - 30))

        start = point(SEEN - 1, truth[SEEN - 1, number].item())
        for values in dreamt[:, :, number].T.tolist():
            pen.line([start, *(point(SEEN + row, value) for row, value in enumerate(values))], fill=(200, 110, 30))
        pen.line([point(row, value) for row, value in enumerate(truth[:, number].tolist())], fill="white", width=2)
        pen.text((6, top + 4), name, fill=(150, 150, 160))
    image.save(path)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
