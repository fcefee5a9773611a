"""Codes of actions, and policies over them."""

import math

import numpy as np
import pytest
import torch
from gymnasium import spaces

from reverie.envs.form import ActionForm
from reverie.nn.actions import NORMALS, ActionCode, OneHot, Policy, Product
from reverie.nn.normals import Gaussian, TanhNormal
from reverie.nn.truncated import TruncatedNormal

HYBRID = spaces.Dict(
    {"move": spaces.Discrete(3), "aim": spaces.Box(-2, 6, (2,)), "keys": spaces.MultiDiscrete([2, 2, 4])}
)
SPACES = {
    "discrete": spaces.Discrete(5),
    "multi": spaces.MultiDiscrete([3, 2, 4]),
    "box": spaces.Box(np.array([-1.0, 0.0, -np.inf], np.float32), np.array([1.0, 10.0, 3.0], np.float32)),
    "hybrid": HYBRID,
    "tuple": spaces.Tuple([spaces.Box(-1, 1, (1,)), spaces.Tuple([spaces.Discrete(2)])]),
}
BOX = spaces.Box(-1, 1, (2,))


def rows_of(space, count=40):
    """Actions of a space as rows keep them."""
    standard = ActionForm(space).space
    standard.seed(0)
    return torch.from_numpy(np.stack([standard.sample() for _ in range(count)]))


@pytest.mark.parametrize("name", SPACES)
def test_codes_can_be_undone(name):
    code, actions = ActionCode(SPACES[name]), rows_of(SPACES[name])
    vector = code.encode(actions)
    assert vector.shape == (40, code.size) and vector.dtype == torch.float32
    decoded = code.decode(vector)
    assert decoded.dtype == actions.dtype
    torch.testing.assert_close(decoded, actions)
    lead = code.encode(actions.unflatten(0, (5, 8)))
    assert torch.equal(lead.flatten(0, 1), vector)


def test_classes_are_one_hot_and_bounds_are_one():
    assert ActionCode(SPACES["discrete"]).encode(torch.tensor([2])).tolist() == [[0, 0, 1, 0, 0]]
    assert ActionCode(SPACES["multi"]).encode(torch.tensor([[2, 0, 3]])).tolist() == [[0, 0, 1, 1, 0, 0, 0, 0, 1]]
    box = ActionCode(SPACES["box"])
    assert box.encode(torch.tensor([[-1.0, 0.0, 7.0], [1.0, 10.0, -7.0]])).tolist() == [[-1, -1, 7], [1, 1, -7]]
    hybrid = ActionCode(HYBRID)  # aim, keys, move: Gymnasium sorts the keys of a Dict
    assert hybrid.encode(torch.tensor([[-2.0, 4.0, 1, 0, 2, 1]])).tolist() == [
        [-1, 0.5, *(0, 1), *(1, 0), *(0, 0, 1, 0), *(0, 1, 0)]
    ]


def test_a_box_without_width_is_no_division_by_zero():
    code = ActionCode(spaces.Box(np.array([2.0], np.float32), np.array([2.0], np.float32)))
    assert code.encode(torch.tensor([[2.0]])).tolist() == [[0.0]]
    assert code.decode(torch.tensor([[0.0]])).tolist() == [[2.0]]


def test_random_actions_are_uniform():
    actions = ActionCode(HYBRID).random(40_000, torch.Generator().manual_seed(0))
    assert actions.shape == (40_000, 6)
    aim, keys, move = actions[:, :2], actions[:, 2:5], actions[:, 5]
    torch.testing.assert_close(torch.bincount(move.long()) / 40_000, torch.full((3,), 1 / 3), atol=0.01, rtol=0)
    torch.testing.assert_close(keys.mean(0), torch.tensor([0.5, 0.5, 1.5]), atol=0.02, rtol=0)
    torch.testing.assert_close(aim.mean(0), torch.tensor([2.0, 2.0]), atol=0.05, rtol=0)
    assert aim.min() < -1.99 and aim.max() > 5.99


@pytest.mark.parametrize("continuous", NORMALS)
@pytest.mark.parametrize("name", SPACES)
def test_policies_speak_the_code(name, continuous):
    code, policy = ActionCode(SPACES[name]), Policy(SPACES[name], continuous, unimix=0.01)
    outputs = torch.randn(4, 7, policy.outputs, generator=torch.Generator().manual_seed(0), requires_grad=True)
    dist = policy(outputs.bfloat16())
    draws = [dist.sample(dist.noise(torch.Generator().manual_seed(seed))) for seed in (1, 1, 2)]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])
    assert draws[0].shape == dist.mode().shape == (4, 7, code.size)
    assert torch.equal(draws[0], dist.rsample(dist.noise(torch.Generator().manual_seed(1))).detach())
    numbers = [dist.logp(draws[0]), dist.entropy(), dist.divergence()]
    for number in [*numbers, dist.rsample(dist.noise(torch.Generator().manual_seed(1))).square().sum(-1)]:
        assert number.shape == (4, 7) and number.dtype == torch.float32 and number.isfinite().all()
        (slope,) = torch.autograd.grad(number.sum(), outputs, retain_graph=True)
        assert slope.isfinite().all() and slope.abs().sum() > 0
    assert (dist.divergence() > 0).all()
    decoded = code.decode(draws[0])
    torch.testing.assert_close(code.encode(decoded), draws[0])


def parameters(continuous, mean, spread, **options):
    dist = Policy(BOX, continuous, **options)(torch.tensor([[mean, mean, spread, spread]]))
    return dist, dist.mean[0, 0].item(), dist.std[0, 0].item()


def test_parameters_of_the_continuous_policies():
    dist, mean, std = parameters("bounded_normal", 0.7, -0.4)
    assert type(dist) is Gaussian
    assert (mean, std) == pytest.approx((math.tanh(0.7), 0.9 / (1 + math.exp(-1.6)) + 0.1))
    dist, mean, std = parameters("tanh_normal", 8.0, 0.3)
    assert type(dist) is TanhNormal
    raw = math.log(math.exp(5) - 1)
    assert (mean, std) == pytest.approx((5 * math.tanh(1.6), math.log1p(math.exp(0.3 + raw)) + 1e-4))
    dist, mean, std = parameters("truncated_normal", -0.7, 1.2)
    assert type(dist) is TruncatedNormal
    assert (mean, std) == pytest.approx((math.tanh(-0.7), 2 / (1 + math.exp(-0.6)) + 0.1))
    dist, mean, std = parameters("normal", 3.0, 0.0)
    assert type(dist) is Gaussian and (mean, std) == pytest.approx((3.0, 1.1))


def test_deviations_can_be_given():
    assert parameters("bounded_normal", 0.0, 100.0, max_std=0.5)[2] == pytest.approx(0.5)
    assert parameters("bounded_normal", 0.0, -100.0, min_std=0.02)[2] == pytest.approx(0.02)
    assert parameters("normal", 0.0, 0.0, init_std=0.3, min_std=0.0)[2] == pytest.approx(0.3)


@pytest.mark.parametrize("unimix", [0.0, 0.25])
def test_unimix_reaches_samples_log_probability_and_entropy(unimix):
    logits = torch.tensor([12.0, 0.0, 0.0])
    dist = Policy(spaces.Discrete(3), unimix=unimix)(logits.expand(20_000, 3))
    probs = (1 - unimix) * logits.softmax(-1) + unimix / 3
    torch.testing.assert_close(
        dist.sample(dist.noise(torch.Generator().manual_seed(0))).mean(0), probs, atol=0.01, rtol=0
    )
    torch.testing.assert_close(dist.logp(torch.eye(3)[1])[0], probs[1].log())
    torch.testing.assert_close(dist.entropy()[0], -(probs * probs.log()).sum())


def test_a_joint_action_is_as_likely_as_its_parts_together():
    policy = Policy(HYBRID, unimix=0.1)
    outputs = torch.randn(6, policy.outputs, generator=torch.Generator().manual_seed(0))
    assert policy.outputs == 2 * 2 + 2 * 2 + 4 + 3
    aim, keys, last, move = outputs.split([4, 4, 4, 3], -1)
    parts = [Policy(BOX)(aim), OneHot(keys, 0.1, 2), OneHot(last, 0.1), OneHot(move, 0.1)]
    dist = policy(outputs)
    assert isinstance(dist, Product)
    vector = dist.sample(dist.noise(torch.Generator().manual_seed(1)))
    pieces = vector.split([2, 4, 4, 3], -1)
    torch.testing.assert_close(dist.logp(vector), sum(part.logp(piece) for part, piece in zip(parts, pieces)))
    torch.testing.assert_close(dist.entropy(), sum(part.entropy() for part in parts))
    torch.testing.assert_close(dist.divergence(), sum(part.divergence() for part in parts))
    assert torch.equal(dist.mode(), torch.cat([part.mode() for part in parts], -1))


@pytest.mark.parametrize("name", SPACES)
def test_a_policy_that_knows_nothing_has_no_divergence(name):
    space = SPACES[name]
    policy = Policy(space, "normal", min_std=0.0, init_std=1.0)
    torch.testing.assert_close(policy(torch.zeros(3, policy.outputs)).divergence(), torch.zeros(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize("continuous", NORMALS)
def test_policies_compile_as_one_graph(continuous):
    policy = Policy(HYBRID, continuous, unimix=0.01)
    outputs = torch.randn(3, policy.outputs, generator=torch.Generator().manual_seed(0))

    noise = policy.noise((3,), torch.Generator().manual_seed(1))

    def everything(outputs):
        dist = policy(outputs)
        drawn = dist.rsample(noise)
        return drawn, dist.mode(), dist.logp(drawn.detach()), dist.entropy(), dist.divergence()

    expected = everything(outputs)
    compiled = torch.compile(everything, backend="aot_eager", fullgraph=True)(outputs)
    for ours, theirs in zip(compiled, expected):
        torch.testing.assert_close(ours, theirs)
