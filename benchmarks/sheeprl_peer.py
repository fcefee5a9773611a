"""sheeprl's side of sheeprl_update.py, for the Python that sheeprl is installed in.

Takes the sizes as one JSON object, then for every number on its input makes as many updates and prints their seconds,
on the clock and of the processor.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from hydra import compose, initialize_config_module
from hydra.utils import instantiate
from lightning.fabric import Fabric
from omegaconf import OmegaConf
from sheeprl.utils.metric import MetricAggregator
from sheeprl.utils.utils import dotdict
from torch.distributions import Distribution

Sizes = dict[str, Any]


def options(sizes: Sizes) -> list[str]:
    """The sizes as sheeprl's options, by the names that its dreamer_v3 and its dreamer_v3_5 share."""
    world = "algo.world_model"
    return [
        "exp=" + sizes["form"], "env=gym", "algo.cnn_keys.encoder=[]", "algo.mlp_keys.encoder=[vector]",
        "algo.cnn_keys.decoder=[]", "algo.mlp_keys.decoder=[vector]",
        f"algo.per_rank_batch_size={sizes['batch']}", f"algo.per_rank_sequence_length={sizes['length']}",
        f"algo.horizon={sizes['horizon']}", f"algo.dense_units={sizes['units']}",
        f"{world}.stochastic_size={sizes['groups']}", f"{world}.discrete_size={sizes['classes']}",
        f"{world}.recurrent_model.recurrent_state_size={sizes['deter']}",
        f"{world}.transition_model.hidden_size={sizes['hidden']}",
        f"{world}.representation_model.hidden_size={sizes['hidden']}",
        f"{world}.encoder.mlp_layers={sizes['layers']}", f"{world}.observation_model.mlp_layers={sizes['layers']}",
        f"{world}.reward_model.mlp_layers={sizes['reward_layers']}", f"{world}.reward_model.bins={sizes['bins']}",
        f"{world}.discount_model.mlp_layers={sizes['cont_layers']}",
        f"algo.actor.mlp_layers={sizes['actor_layers']}",
        f"algo.critic.mlp_layers={sizes['critic_layers']}", f"algo.critic.bins={sizes['bins']}",
    ]  # fmt: skip


def configured(sizes: Sizes) -> Any:
    """sheeprl's configuration of these sizes."""
    own = {
        "dreamer_v3": [f"algo.world_model.recurrent_model.dense_units={sizes['hidden']}", "algo.mlp_layers=1"],
        "dreamer_v3_5": [f"algo.world_model.recurrent_model.hidden_size={sizes['hidden']}", "algo.replay_context=0"],
    }
    with initialize_config_module("sheeprl.configs", version_base="1.3"):
        config = compose("config", [*options(sizes), *own[sizes["form"]]])
    OmegaConf.resolve(config.algo)
    return dotdict(OmegaConf.to_container(config, resolve=False))


def batch_of(sizes: Sizes) -> dict[str, torch.Tensor]:
    """A batch (T, B, ...) of made-up rows."""
    lead = (sizes["length"], sizes["batch"])
    action = torch.randint(sizes["actions"], lead)
    rows = {name: torch.zeros(*lead, 1) for name in ("terminated", "truncated", "is_first")}
    rows |= {"vector": torch.randn(*lead, sizes["numbers"]), "rewards": torch.randn(*lead, 1)}
    return rows | {"actions": torch.nn.functional.one_hot(action, sizes["actions"]).float()}


def update_of(sizes: Sizes) -> Callable[[], Any]:
    """One gradient update of sheeprl's own agent with its own training function."""
    config, form = configured(sizes), sizes["form"]
    agents = importlib.import_module(f"sheeprl.algos.{form}.agent")
    training = importlib.import_module(f"sheeprl.algos.{form}.{form}")
    Distribution.set_default_validate_args(False)
    MetricAggregator.disabled = True
    fabric = Fabric(accelerator="cpu", devices=1)
    space = spaces.Dict({"vector": spaces.Box(-np.inf, np.inf, (sizes["numbers"],), np.float32)})
    actions = (sizes["actions"],)
    world, actor, critic, target, _ = agents.build_agent(fabric, actions, False, config, space)
    moments, batch = moments_of(training, config), batch_of(sizes)
    networks = {"world_model": world, "actor": actor, "critic": critic}
    if form == "dreamer_v3_5":
        parameters = [each for network in networks.values() for each in network.parameters()]
        stepper = fabric.setup_optimizers(instantiate(config.algo.optimizer, params=parameters, _convert_="all"))
        return lambda: training.train(
            fabric, config, world, actor, critic, target, stepper, moments, dict(batch), None, actions
        )
    steppers = [
        fabric.setup_optimizers(instantiate(config.algo[name].optimizer, params=network.parameters(), _convert_="all"))
        for name, network in networks.items()
    ]
    return lambda: training.train(
        fabric, world, actor, critic, target, *steppers, dict(batch), None, config, False, actions, moments
    )


def moments_of(training: Any, config: Any) -> Any:
    """What sheeprl scales returns by."""
    found = config.algo.actor.moments
    return training.Moments(found.decay, found.max, found.percentile.low, found.percentile.high)


def main() -> None:
    sizes = json.loads(sys.argv[1])
    torch.set_num_threads(sizes["threads"])
    torch.manual_seed(0)
    update = update_of(sizes)
    for line in sys.stdin:
        start, busy = time.perf_counter(), time.process_time()
        for _ in range(int(line)):
            update()
        print(time.perf_counter() - start, time.process_time() - busy, flush=True)


if __name__ == "__main__":
    main()
