"""Generators as actors of a Ray cluster of two machines, one of which is lost on the way."""

import importlib
import logging
from contextlib import closing
from itertools import pairwise

import pytest
import torch

import reverie
from required import package
from reverie.build import make_parts
from reverie.config.errors import UserError

ray = package("ray")
importlib.import_module("ray.cluster_utils")

ROWS, ENVS = 4, 4


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two machines as far as Ray can tell, each with two cores."""
    made = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=2)
    yield made
    ray.shutdown()
    made.shutdown()


def parts_of(cluster, *presets, **options):
    options = {"task": "toy_count", "envs__count": ENVS, "collect__mode": "ray", "collect__address": cluster.address,
               "collect__generators": 4, "collect__rows": ROWS, "run__eval_every": 0, "run__eval_at_end": False,
               **options}  # fmt: skip
    return closing(make_parts(reverie.configure(*presets, **options)))


def test_a_machine_that_is_lost_does_not_end_the_run(cluster, caplog):
    with parts_of(cluster, "dreamer_v3", "debug") as parts, caplog.at_level(logging.WARNING, "reverie"):
        collector = parts.collector
        before = [collector.collect(1) for _ in range(4)]
        where = [each["NodeID"] for each in ray.nodes() if each["Alive"]]
        assert len(where) == 2 and not any(chunk.severed for chunk in before)
        for first, second in pairwise(before):
            assert torch.equal(first.rows["vector"][-1], second.rows["vector"][0])
        assert before[0].rows["deter"].dtype == torch.bfloat16
        lives = [crew.lives for crew in collector.crews]
        cluster.remove_node(cluster.list_all_nodes()[-1], allow_graceful=False)
        collector.publish(5)
        after = [collector.collect(1) for _ in range(4)]
        lost = {env for chunk in after for env in chunk.severed}
        assert lost == {crew.number for crew in collector.crews if crew.lives > lives[crew.number]} and len(lost) >= 1
        for number, chunk in enumerate(after):
            previous = [before[-1], *after][number]
            for env in range(ENVS):
                follows = torch.equal(previous.rows["vector"][-1, env], chunk.rows["vector"][0, env])
                assert follows != (env in chunk.severed)
                assert chunk.rows["is_first"][0, env] or env not in chunk.severed
        assert "is lost" in caplog.text and after[-1].metrics["collect/lag"] == 0


def test_rollouts_of_ppo_are_acted_upon_with_the_weights_that_learn_from_them(cluster):
    with parts_of(cluster, "debug", task="gym_CartPole-v1", ppo__rollout=8, collect__generators=2) as parts:
        collector, agent = parts.collector, parts.agent
        updates = 0
        for _ in range(3):
            rows = collector.collect(agent.rollout).rows
            with torch.no_grad():
                policy, _ = agent.net({key: x[:-1] for key, x in rows.items()})
            assert torch.allclose(policy.logp(rows["action"][:-1]), rows["logp"][:-1], atol=1e-5)
            updates += agent.learn_rollout(rows).updates
            collector.publish(updates)


def test_a_generator_that_cannot_be_built_ends_the_run_with_its_reason(cluster):
    def refused():
        raise UserError("no such store: make it")

    with parts_of(cluster, agent__name="random", collect__generators=2) as parts:
        parts.collector.record(refused)
        with pytest.raises(UserError, match=r"^no such store: make it$"):
            parts.collector.collect(1)


def test_a_cluster_that_is_not_there_is_told():
    if ray.is_initialized():
        ray.shutdown()
    with pytest.raises(UserError, match=r"no Ray cluster at --collect.address"):
        make_parts(reverie.configure("debug", task="toy_count", collect__mode="ray", collect__address="127.0.0.1:1"))
