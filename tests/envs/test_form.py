import numpy as np
import pytest
from gymnasium import spaces

from reverie.config.errors import UserError
from reverie.envs.form import ActionForm, ObservationForm

PIXELS = spaces.Box(0, 255, (8, 6, 3), np.uint8)


@pytest.mark.parametrize(
    ("space", "key", "shape", "dtype"),
    [
        (PIXELS, "image", (8, 6, 3), np.uint8),
        (spaces.Box(0, 255, (8, 6), np.uint8), "image", (8, 6, 1), np.uint8),
        (spaces.Box(-1, 1, (4,), np.float64), "vector", (4,), np.float32),
        (spaces.Box(-1, 1, (), np.float32), "vector", (1,), np.float32),
        (spaces.Box(0, 1, (3,), np.bool_), "vector", (3,), np.float32),
        (spaces.Box(0, 9, (3,), np.int64), "vector", (3,), np.int64),
        (spaces.Discrete(5), "vector", (), np.int64),
        (spaces.MultiDiscrete([2, 3]), "vector", (2,), np.int64),
        (spaces.MultiBinary(4), "vector", (4,), np.int8),
    ],
)
def test_lone_observations_get_a_key_and_become_arrays(space, key, shape, dtype):
    form = ObservationForm(space)
    observation = form(space.sample())
    assert list(observation) == [key]
    assert isinstance(observation[key], np.ndarray)
    assert observation[key].shape == shape and observation[key].dtype == dtype
    assert form.space.contains(observation) or form.space[key].shape == ()


def test_nested_spaces_become_flat():
    space = spaces.Dict({"eye": spaces.Dict({"left": PIXELS}), "pair": spaces.Tuple([spaces.Discrete(2), PIXELS])})
    sample = space.sample()
    flat = ObservationForm(space)(sample)
    assert set(flat) == {"eye/left", "pair/0", "pair/1"}
    assert np.array_equal(flat["eye/left"], sample["eye"]["left"])
    assert flat["pair/0"] == sample["pair"][0]


def test_a_vector_of_environments_takes_the_same_form():
    form = ObservationForm(spaces.Box(0, 255, (8, 6), np.uint8))
    assert form(np.zeros((5, 8, 6), np.uint8), (5,))["image"].shape == (5, 8, 6, 1)


def test_observations_are_no_live_views():
    live = np.zeros(3, np.float32)
    shown = ObservationForm(spaces.Box(0, 1, (3,)))(live)["vector"]
    live[:] = 1
    assert shown.tolist() == [0, 0, 0]


def test_classes_start_at_zero():
    form = ObservationForm(spaces.Dict({"a": spaces.Discrete(3, start=5), "b": spaces.MultiDiscrete([2], start=[7])}))
    assert {key: value.tolist() for key, value in form({"a": 6, "b": np.array([8])}).items()} == {"a": 1, "b": [1]}
    assert form.space["a"].start == 0


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (spaces.Dict({"reward": spaces.Discrete(2)}), "'reward'"),
        (spaces.Dict({"note": spaces.Text(5)}), "'note' is a Text space"),
        (spaces.Dict({"a": spaces.Dict({"b": spaces.Sequence(spaces.Discrete(2))})}), "'a/b' is a Sequence space"),
        (spaces.Dict({"a/b": spaces.Discrete(2), "a": spaces.Dict({"b": spaces.Discrete(2)})}), "two .* 'a/b'"),
        (spaces.Dict({}), "no entries"),
    ],
)
def test_what_rows_cannot_hold_is_refused_in_one_line(space, words):
    with pytest.raises(UserError, match=words) as caught:
        ObservationForm(space)
    assert "\n" not in str(caught.value)


def test_discrete_actions_are_shifted():
    form = ActionForm(spaces.Discrete(3, start=-1))
    assert form.space == spaces.Discrete(3)
    assert [form(action) for action in np.arange(3)] == [-1, 0, 1]
    assert form(np.arange(3), (3,)).tolist() == [-1, 0, 1]


def test_actions_of_several_dimensions_are_flat():
    form = ActionForm(spaces.MultiDiscrete([[2, 3], [4, 5]], start=[[1, 1], [1, 1]]))
    assert form.space == spaces.MultiDiscrete([2, 3, 4, 5])
    assert form(np.array([0, 1, 2, 3])).tolist() == [[1, 2], [3, 4]]
    box = ActionForm(spaces.Box(-2, 2, (2, 2), np.float64))
    assert box.space == spaces.Box(-2, 2, (4,), np.float32)
    assert box(np.arange(4, dtype=np.float32) / 4).tolist() == [[0, 0.25], [0.5, 0.75]]


def test_a_bound_rounded_up_in_float32_is_clipped_to_the_environments_own():
    raw = spaces.Box(-0.1, 0.1, (1,), np.float64)
    form = ActionForm(raw)
    assert float(form.space.high[0]) > 0.1
    assert raw.contains(form(form.space.high))


def test_binary_switches_are_classes():
    form = ActionForm(spaces.MultiBinary(3))
    assert form.space == spaces.MultiDiscrete([2, 2, 2])
    assert form.raw.contains(form(np.array([1, 0, 1])))


@pytest.mark.parametrize("space", [spaces.Text(2), spaces.Box(0, 5, (2,), np.int64)])
def test_other_actions_are_refused(space):
    with pytest.raises(UserError, match="action space is a"):
        ActionForm(space)
