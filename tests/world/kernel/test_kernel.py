"""The kernels themselves: on a GPU if there is one, and always on a CPU that plays one."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from emulation.differences import first_wrong, forward_pairs, reverse_pairs
from emulation.emulated import Emulated, Poisoned, require_compiler
from emulation.phases import Phases
from emulation.windows import CONFIGS, Window, goals_of, rssm_of, window_of
from reverie.world.kernel.persistent import PersistentScan
from reverie.world.kernel.program import Found, Program, times_of
from reverie.world.kernel.shape import shape_of, unfit
from reverie.world.rssm import RSSM, State
from reverie.world.scan import Scan

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
WAITS = {
    "forward": ("mix", "project (posterior)", "project (summary)", "summarise", "infer", "embed", *["advance"] * 8),
    "reverse": ("tilt", "unmix", "unsummarise", "undraw", "uninfer", *["ungate"] * 8),
}
"""Phases that others wait for, in the order of the kernels' counters."""


@dataclass
class Case:
    """A model, a window and the kernels."""

    rssm: RSSM
    window: Window
    goals: tuple[Tensor, Tensor, Tensor]
    program: Program
    weights: Found

    def forward(self) -> Found:
        """What the kernel finds."""
        found = self.program.forward(self.weights, self.window.start, *self.window.turned())
        return self.checked("forward", found)

    def reverse(self, found: Found) -> Found:
        """What the kernel finds backwards."""
        grads = self.program.reverse(self.weights, found, self.window.turned()[0], self.goals)
        return self.checked("reverse", grads)

    def checked(self, name: str, found: Found) -> Found:
        """The same, if no thread block has waited in vain."""
        code = int(self.program.fault)
        assert not code, f"{name}: waited in vain for {WAITS[name][(code & 255) - 1]} at step {code >> 8}"
        return found

    def gradients(self, scan: Scan, steps: int) -> dict[str, Tensor]:
        """States of the first steps, and gradients of inputs and weights, as training takes them."""
        start, *inputs = self.window
        window = Window(start, *(x[:, :steps] for x in inputs))
        leaves = {name: getattr(window, name).detach().requires_grad_() for name in ("acted", "embedded")}
        window, weights = window._replace(**leaves), dict(self.rssm.named_parameters())
        with torch.autocast(self.window.first.device.type, torch.bfloat16):
            state, params = scan(*window)
        goals = [goal[:steps].transpose(0, 1) for goal in self.goals]
        grads = torch.autograd.grad([*state, params], [*leaves.values(), *weights.values()], goals, allow_unused=True)
        found = {name: grad for name, grad in zip([*leaves, *weights], grads) if grad is not None}
        return found | {"deter": state.deter.detach(), "params": params.detach()}


STAND_INS = {"wide": (32, 164_000, 0), "wider": (64, 176_000, 8)}
"""Small models whose weights are streamed as those of larger ones are: `tile`, `room` and `ahead` of their shapes."""
ON_GPU = ("1m", "12m", "25m", "50m", "100m", "200m")
PLAYED = ("1m played", "wide played", "wider played")


@pytest.fixture(scope="module", params=[*PLAYED, *(pytest.param(size, marks=needs_gpu) for size in ON_GPU)])
def case(request, tmp_path_factory) -> Case:
    size, _, played = request.param.partition(" ")
    if played:
        require_compiler()
    return case_of(size, tmp_path_factory.mktemp("kernels") if played else None)


def case_of(size: str, folder: Path | None, steps: int = 4) -> Case:
    """A model of some size, for a GPU or played by a library in a folder."""
    steps, device = (steps, "cpu") if folder else (64, "cuda")
    rssm = rssm_of(CONFIGS[size], device)
    shape, window = shape_of(rssm), window_of(rssm, steps).halved()
    if size in STAND_INS:
        tile, room, ahead = STAND_INS[size]
        shape = replace(shape, tile=tile, room=room, ahead=ahead, lasting=ahead)
        assert shape.streamed and min(shape.slots.values()) >= 4
    else:
        assert not unfit(rssm, 16, half=True)
    program = Emulated(shape, folder) if folder else Poisoned(shape, rssm.deter_in.weight.device, trapping=False)
    with torch.autocast(device, torch.bfloat16):
        weights = PersistentScan(rssm, program).kernel_weights()
    return Case(rssm, window, goals_of(rssm, steps), program, weights)


def test_no_phase_is_wrong(case):
    phases = Phases(case.program.shape, case.weights, half=True)
    inputs, found = case.window.turned(), case.forward()
    wrong = first_wrong(forward_pairs(phases, found, case.window.start, inputs))
    assert not wrong, wrong
    wrong = first_wrong(reverse_pairs(phases, found, case.reverse(found), inputs[0], case.goals))
    assert not wrong, wrong


@pytest.mark.parametrize("size", ["25m", "50m"])
def test_no_phase_is_wrong_at_sizes_that_are_streamed(tmp_path, size):
    require_compiler()
    test_no_phase_is_wrong(case_of(size, tmp_path, steps=2))


@pytest.mark.parametrize("steps", [1, 2])
def test_short_windows(tmp_path, steps):
    """Some weights pass unused at the first step and at the last, which may be the same one."""
    require_compiler()
    test_no_phase_is_wrong(case_of("wide", tmp_path, steps))


def test_whatever_runs_first_the_bits_are_the_same(case):
    """A value that is read before it was written, or written twice, would show."""
    found = case.forward()
    grads = case.reverse(found)
    for seed in range(1, 4 if isinstance(case.program, Emulated) else 20):
        case.program.seed = seed
        again = case.forward()
        for name in ("deter", "stoch", "params"):
            assert torch.equal(again[name], found[name]), f"{name}, run {seed}"
        again = case.reverse(found)
        for name in ("total_deter", "total_stoch"):
            assert torch.equal(again[name], grads[name]), f"{name}, run {seed}"


def cosine(left: Tensor, right: Tensor) -> float:
    """How far two tensors point the same way."""
    return float(torch.nn.functional.cosine_similarity(left.double().flatten(), right.double().flatten(), 0))


def test_each_step_is_a_step_of_scan(case):
    """From the kernel's own states, since paths part where draws fall to either side of a boundary."""
    scan, inputs, found = Scan(case.rssm), case.window.turned(), case.forward()
    before, carried = State(found["deters"][:-1], found["stochs"][:-1]), State(0, 0)
    totals, flips = [], 0.0
    with torch.autocast(inputs[0].device.type, torch.bfloat16):
        weights = scan.halved()
        for t in reversed(range(len(inputs[0]))):
            leaf = State(*(x[t].clone().requires_grad_() for x in before))
            deter, stoch, params = scan.step(weights, leaf, *(x[t] for x in inputs))
            torch.testing.assert_close(found["deter"][t], deter.detach(), rtol=0, atol=0.03)
            torch.testing.assert_close(found["params"][t], params.detach(), rtol=0, atol=0.2)
            flips += float((found["stoch"][t] != stoch.detach().round()).sum()) / 2
            totals.append(State(case.goals[0][t] + carried.deter, case.goals[1][t] + carried.stoch))
            goals = (*totals[-1], case.goals[2][t])
            carried = State(*torch.autograd.grad((deter, stoch, params), tuple(leaf), goals))
    crowded = max(1, case.program.shape.classes / 16)  # more classes have more boundaries between them
    assert flips < 0.01 * crowded * inputs[-1].numel()
    grads = case.reverse(found)
    for name, steps, goal in zip(("total_deter", "total_stoch"), zip(*totals), case.goals):
        expected = torch.stack(steps[::-1])
        assert cosine(grads[name], expected) > 0.999
        assert cosine(grads[name] - goal, expected - goal) > 0.999  # what later steps add


def test_gradients_are_those_of_scan(case):
    expected, found = (case.gradients(s, 4) for s in (Scan(case.rssm), PersistentScan(case.rssm, case.program)))
    assert expected.keys() == found.keys() and "cell.mix.weight" in found
    for name, value in expected.items():
        assert cosine(found[name], value) > 0.98, name


def test_the_batch_of_all_steps_is_compiled(case):
    counter = CompileCounter()
    expected = case.gradients(PersistentScan(case.rssm, case.program), 3)
    found = case.gradients(PersistentScan(case.rssm, case.program, counter), 3)
    assert counter.frame_count == 1  # all steps at once, and no step by itself
    for name, value in expected.items():
        assert cosine(found[name], value) > 0.9999, name


@needs_gpu
def test_kernels_in_a_graph_do_what_they_do_outside(case):
    if isinstance(case.program, Emulated):
        pytest.skip("only a GPU has graphs")
    scan, stream = PersistentScan(case.rssm, case.program), torch.cuda.Stream()
    steps = case.window.first.shape[1]
    expected = case.gradients(scan, steps)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        case.gradients(scan, steps)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        found = case.gradients(scan, steps)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    case.checked("forward", found)
    assert torch.equal(found["deter"], expected["deter"]) and torch.equal(found["params"], expected["params"])
    for name, value in expected.items():
        assert cosine(found[name], value) > 0.9999, name


def test_waits_are_written_down_where_they_are_timed_and_nothing_else_changes(tmp_path):
    require_compiler()
    plain, steps = case_of("1m", tmp_path), 4
    timed = Emulated(plain.program.shape, tmp_path, timed=steps)
    found, expected = timed.forward(plain.weights, plain.window.start, *plain.window.turned()), plain.forward()
    for name, value in expected.items():
        assert torch.equal(found[name].nan_to_num(), value.nan_to_num()), name
    began, ended = times_of(timed, steps).unbind(-1)
    names = WAITS["forward"]
    written = {name: began[1:, :, i].gt(0).all().item() for i, name in enumerate(names)}
    assert [name for name, all_wait in written.items() if all_wait] == ["mix", "summarise", "embed"]
    assert (ended >= began).all() and began[1:, 0].amax(-1).diff().gt(0).all()
