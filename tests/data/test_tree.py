import pytest
import torch

from reverie.data.tree import WIDTH, SumTree

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 5, WIDTH, WIDTH + 1, 3 * WIDTH**2 + 7])
def test_every_node_is_the_sum_of_its_children_however_weights_were_set(size):
    generator = torch.Generator().manual_seed(0)
    tree, weights = SumTree(size, CPU), torch.zeros(size, dtype=torch.float64)
    for _ in range(5):
        low, high = sorted(torch.randint(size + 1, (2,), generator=generator).tolist())
        tree.fill(low, high, torch.tensor(2.0, dtype=torch.float64))
        weights[low:high] = 2
        places = torch.randint(size, (50,), generator=generator)
        tree.put(places, places.double() % 7)
        weights[places] = places.double() % 7
    assert torch.equal(tree.levels[0][:size], weights)
    assert tree.total() == weights.sum()
    for place in torch.randint(size + 1, (10,), generator=generator).tolist():
        assert tree.before(place) == weights[:place].sum()


def test_a_mass_finds_the_place_where_the_sum_passes_it():
    size = 2 * WIDTH**2 + 3
    weights = torch.arange(size, dtype=torch.float64) % 5
    tree = SumTree(size, CPU)
    tree.put(torch.arange(size), weights)
    mass = torch.rand(500, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * weights.sum()
    assert torch.equal(tree.find(mass), torch.searchsorted(weights.cumsum(0), mass, right=True))


def test_places_without_weight_are_never_found():
    tree = SumTree(1000, CPU)
    tree.put(torch.tensor([3, 700]), torch.tensor([1.0, 3.0], dtype=torch.float64))
    assert tree.find(torch.tensor([0.0, 0.5, 1.0, 3.9], dtype=torch.float64)).tolist() == [3, 3, 700, 700]


def test_a_state_comes_back_and_does_not_change_with_the_tree():
    tree, other = SumTree(300, CPU), SumTree(300, CPU)
    tree.fill(0, 300, torch.tensor(0.1, dtype=torch.float64))
    state = tree.state()
    tree.fill(0, 300, torch.tensor(9.0, dtype=torch.float64))
    other.restore(state)
    assert other.total() == pytest.approx(30)
    with pytest.raises(ValueError, match="priorities"):
        SumTree(WIDTH + 1, CPU).restore(SumTree(3 * WIDTH, CPU).state())
