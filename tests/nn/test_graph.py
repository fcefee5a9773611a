"""Captured functions do what plain ones do. Without a GPU there is nothing to capture."""

import pytest
import torch

from reverie.nn import graph
from reverie.nn.graph import Graphed

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


class Counter:
    """Adds what it is given and a random number to a total of its own."""

    def __init__(self, device, seed=0):
        self.total = torch.zeros(3, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, inputs):
        noise = torch.rand(3, generator=self.generator, device=self.total.device)
        self.total += inputs["x"] + noise
        return {"total": self.total.clone(), "noise": noise}


def test_names_for_people():
    assert graph.name_of(Counter("cpu").__call__) == "call"
    assert graph.name_of(object()) == "a function"


def test_a_function_that_could_not_be_captured_is_tried_again_once_it_is_another():
    graphed = Graphed(Counter("cpu"), [])
    graphed.failed, graphed.calls = True, {"form": 9}
    graphed.forget()
    assert not graphed.failed and not graphed.calls


@needs_gpu
def test_replays_equal_plain_calls():
    plain, captured = Counter("cuda"), Counter("cuda")
    fast = Graphed(captured, [captured.generator])
    kept = []
    for step in range(10):
        inputs = {"x": torch.full((3,), float(step), device="cuda")}
        expected, found = plain(inputs), fast(inputs)
        kept.append((expected, found))
    assert fast.captures and not fast.failed
    for expected, found in kept:  # also the earlier ones, which later replays must not have overwritten
        for name in expected:
            torch.testing.assert_close(found[name], expected[name])


@needs_gpu
def test_other_shapes_get_graphs_of_their_own_and_failures_fall_back(caplog):
    fast = Graphed(lambda inputs: {"y": inputs["x"] * 2}, [])
    for size in (2, 3):
        for _ in range(graph.WARMUP + 2):
            assert fast({"x": torch.ones(size, device="cuda")})["y"].sum() == 2 * size
    assert len(fast.captures) == 2
    waiting = Graphed(lambda inputs: {"y": inputs["x"] * inputs["x"].sum().item()}, [])
    for _ in range(graph.WARMUP + 2):
        assert waiting({"x": torch.ones(2, device="cuda")})["y"].sum() == 4
    assert waiting.failed and "without a GPU graph" in caplog.text


@needs_gpu
def test_what_is_forgotten_is_captured_anew_and_draws_on():
    plain, counter = Counter("cuda"), Counter("cuda")
    functions = {"of": counter}
    fast = Graphed(lambda inputs: functions["of"](inputs), [counter.generator])
    inputs = {"x": torch.ones(3, device="cuda")}
    for change in range(3):
        functions["of"] = lambda given, times=change: {**counter(given), "times": torch.full((), times, device="cuda")}
        fast.forget()
        for _ in range(graph.WARMUP + 3):
            expected, found = plain(inputs), fast(inputs)
            torch.testing.assert_close(found["noise"], expected["noise"])
            assert found["times"] == change
        assert len(fast.captures) == 1 and not fast.failed
    torch.testing.assert_close(counter.total, plain.total)


@needs_gpu
def test_generators_draw_on_after_a_capture_that_failed():
    own = torch.Generator("cuda").manual_seed(3)
    like = torch.Generator("cuda").manual_seed(3)
    waiting = Graphed(
        lambda inputs: {"y": torch.rand(2, generator=own, device="cuda") * inputs["x"].sum().item()}, [own]
    )
    for _ in range(graph.WARMUP + 2):
        expected = torch.rand(2, generator=like, device="cuda")
        torch.testing.assert_close(waiting({"x": torch.ones(1, device="cuda")})["y"], expected)
    assert waiting.failed
    torch.randn(3, device="cuda")
