"""One update of Dreamer V3, written out from top to bottom as in the paper.

    python examples/one_update.py [steps]

The package spreads an update over files, since all generations share it, it runs on CPUs and GPUs, and parts of it run
beside others. Here it is on one page: networks and distributions come from an agent, everything else is plain PyTorch.
The program trains a small agent, lets a copy learn from a batch by this page and the agent itself by its own code, and
compares losses and weights. tests/test_one_update.py demands that they agree.

Shapes: B windows, T rows in each, S starts of dreams, H steps of a dream.
"""

from __future__ import annotations

import copy
import sys

import torch
from torch import Tensor

import reverie
from reverie.actors import make_stream
from reverie.agents.dreamer import Dreamer
from reverie.collect.collector import Collector
from reverie.config import store
from reverie.data.replay import Replay
from reverie.data.rows import Batch
from reverie.world.model import Window
from reverie.world.rssm import State


def update(agent: Dreamer, rows: Batch) -> dict[str, Tensor]:
    """Let an agent learn from replayed rows (B, 1 + T), the first of which gives context; the mean of each loss."""
    window = agent.window(rows)
    states, posterior = observe(agent, window)
    losses = world_losses(agent, window, states, posterior)
    starts = State(*(part.detach().flatten(0, 1) for part in states))  # every replayed state: S = B * T
    feature, action = imagine(agent, starts)
    behavior_losses, returns = judge(agent, feature, action)
    losses |= behavior_losses
    losses["replay_critic"] = replay_loss(agent, window, states, returns[0])

    means = {name: loss.mean() for name, loss in losses.items()}
    stepper = agent.steppers["model"]  # LaProp, with gradients cut for each tensor
    stepper.zero()
    torch.stack(list(means.values())).sum().backward()
    stepper.step(stepper.norm(), torch.tensor(True))
    for slow, fast in zip(agent.behavior.slow.parameters(), agent.behavior.critic.parameters()):
        slow.data.lerp_(fast.data, agent.behavior.config.slow_rate)
    return {name: mean.detach() for name, mean in means.items()}


def observe(agent: Dreamer, window: Window) -> tuple[State, Tensor]:
    """Filter: the states (B, T) of a window, and the parameters of the latents that were inferred."""
    rssm = agent.world.rssm
    embedding = agent.world.encoder(window.rows)
    acted, seen = rssm.shares(embedding, window.action, window.is_first)  # what actions and observations add to layers
    noise = rssm.latent.noise(tuple(window.is_first.shape), agent.generator)
    state, states, parameters = window.start, [], []
    for t in range(window.is_first.shape[1]):
        state = rssm.reset(state, window.is_first[:, t])  # nothing is remembered across episodes
        deter = rssm.cell(state.deter, state.stoch, acted[:, t])  # the recurrent network
        inferred = rssm.posterior(deter, seen[:, t])
        state = State(deter, rssm.latent.sample(inferred, noise[:, t]))  # straight-through gradients
        states.append(state)
        parameters.append(inferred)
    deter, stoch = (torch.stack(parts, 1) for parts in zip(*states))
    return State(deter, stoch), torch.stack(parameters, 1)


def world_losses(agent: Dreamer, window: Window, states: State, posterior: Tensor) -> dict[str, Tensor]:
    """The losses (B, T) of the world model: observations, rewards, ends, and the two sides of the KL."""
    world, rows = agent.world, window.rows
    latent, prior = world.rssm.latent, world.rssm.prior(states.deter)
    losses = world.decoder.losses(states, rows)
    losses["reward"] = world.reward_head.loss(states.feature, rows["reward"])  # two-hot
    losses["cont"] = world.cont_head.loss(states.feature, (~rows["is_terminal"]).float() * world.gamma)
    losses["dyn"] = world.config.dyn_scale * latent.kl(posterior.detach(), prior).clamp(min=world.config.free_nats)
    losses["rep"] = world.config.rep_scale * latent.kl(posterior, prior.detach()).clamp(min=world.config.free_nats)
    return losses


@torch.no_grad()
def imagine(agent: Dreamer, state: State) -> tuple[Tensor, Tensor]:
    """Dream: features (H + 1, S, F) of states that follow when the actor acts in the world model, and its actions."""
    rssm, behavior = agent.world.rssm, agent.behavior
    shape = (behavior.config.horizon, len(state.deter))
    draws, noise = behavior.policy.noise(shape, agent.generator), rssm.latent.noise(shape, agent.generator)
    features, actions = [state.feature], []
    for draw, shake in zip(draws, noise):
        actions.append(behavior(state.feature).sample(draw))
        deter = rssm.cell(state.deter, state.stoch, rssm.cell.embed(actions[-1]))
        state = State(deter, rssm.latent.sample(rssm.prior(deter), shake))
        features.append(state.feature)
    return torch.stack(features), torch.stack(actions)


def judge(agent: Dreamer, feature: Tensor, action: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The losses (H, S) of actor and critic in dreams, and the lambda-returns (H, S)."""
    world, behavior = agent.world, agent.behavior
    with torch.no_grad():
        reward, discount = world.reward(feature), world.cont(feature)
        value = behavior.critic.pred(feature)
        returns = lambda_returns(reward, value, discount, behavior.config.lam)
        weight = discount.cumprod(0)[:-1]  # how much a state still counts: nothing after a terminal one
        spread = behavior.range(returns)  # max(1, P95 - P5), running averages, this batch among them
        advantage = (returns - value[:-1]) / spread
        slow = behavior.slow.pred(feature[:-1])
    policy = behavior(feature[:-1])
    actor = -weight * (policy.logp(action) * advantage + behavior.entropy * policy.entropy())
    critic = weight * critic_loss(agent, feature[:-1], returns, slow)
    return {"actor": actor, "critic": critic}, returns


def lambda_returns(reward: Tensor, value: Tensor, discount: Tensor, lam: float) -> Tensor:
    """Returns from each state on but the last, backwards: rewards come with the state that an action leads to."""
    returns, following = [], value[-1]
    for t in reversed(range(len(reward) - 1)):
        following = reward[t + 1] + discount[t + 1] * ((1 - lam) * value[t + 1] + lam * following)
        returns.append(following)
    return torch.stack(returns[::-1])


def critic_loss(agent: Dreamer, feature: Tensor, target: Tensor, slow: Tensor) -> Tensor:
    """Cross-entropy with the two-hot return and, as a brake, with what the slow critic says."""
    behavior = agent.behavior
    outputs, loss = behavior.critic(feature), behavior.critic.output.loss
    return loss(outputs, target) + behavior.config.slow_scale * loss(outputs, slow)


def replay_loss(agent: Dreamer, window: Window, states: State, boot: Tensor) -> Tensor:
    """The critic's loss (B, T - 1) on replayed rewards; dreams say what follows. It also teaches the world model."""
    behavior, rows = agent.behavior, window.rows
    boot = boot.reshape(rows["reward"].shape)  # the return of the dream that began in each row
    discount = agent.world.gamma * (~rows["is_terminal"]).float()
    lam = behavior.config.lam * (~rows["is_last"]).float()  # the next episode is no part of the return
    returns, following = [], boot[:, -1]
    for t in reversed(range(boot.shape[1] - 1)):
        mixture = (1 - lam[:, t + 1]) * boot[:, t + 1] + lam[:, t + 1] * following
        following = rows["reward"][:, t + 1] + discount[:, t + 1] * mixture
        returns.append(following)
    feature = states.feature[:, :-1]
    with torch.no_grad():
        slow = behavior.slow.pred(feature)
    loss = critic_loss(agent, feature, torch.stack(returns[::-1], 1), slow)
    return behavior.config.replay_scale * loss * (~rows["is_last"][:, :-1]).float()


def batch_of(agent: Dreamer, config: reverie.Config, steps: int = 200) -> Batch:
    """A batch of rows that the agent has collected."""
    stream = make_stream(config)
    collector = Collector(stream, agent, agent.device)
    replay = Replay(config.envs.count, steps, device=agent.device, selectors={"uniform": 1.0}, context=1)
    for _ in range(steps // config.envs.count):
        replay.add({key: x[:-1] for key, x in collector.collect(1).rows.items()})
    stream.close()
    return replay.sample(config.replay.batch, config.replay.length + 1)


def main(steps: int = 1_000) -> None:
    """Train, learn from one batch in two ways, and compare."""
    whole = {"behavior__starts": 0, "behavior__horizon": 5, "run__eval_every": 0, "run__eval_at_end": False}
    outcome = reverie.train(reverie.configure("cartpole", run__steps=steps, replay__warmup=256, **whole))
    agent = reverie.load(outcome.logdir, checkpoint="latest").agent
    rows, twin = batch_of(agent, store.load(outcome.logdir)), copy.deepcopy(agent)
    twin.generator.set_state(agent.generator.get_state())  # the same random numbers
    mine, theirs = update(twin, rows), agent.learn_replay(rows).metrics
    print("\nloss            this page  the package")
    for name, loss in mine.items():
        told = theirs[f"{'train' if name in ('actor', 'critic', 'replay_critic') else 'world'}/{name}_loss"]
        print(f"{name:14} {loss:10.6f}   {told:10.6f}")
    apart = max((a - b).abs().max() for a, b in zip(twin.parameters(), agent.parameters()))
    print(f"largest difference between the weights afterwards: {apart:.1e}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
