"""Random numbers belong to the example: pure functions of (seed, index, step, draw), and good ones."""

import math

import pytest
import torch

from pclc.attacks.apgd import edge_point
from pclc.attacks.balls import random_point
from pclc.attacks.fab import _start
from pclc.attacks.random import normal, philox, signs, uniform

INDEX = torch.arange(64)


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 2**64 - 1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_is_the_published_one(counter, key, expected):
    """The known answers that come with Random123, the authors' library."""
    got = philox(tuple(torch.tensor([c]) for c in counter), key)
    assert tuple(int(word) for word in got) == expected


def test_values_do_not_change():
    """Recorded results would no longer be reproduced if these did."""
    index = torch.tensor([0, 7])
    expected = [[0.04678291082382202, 0.7697892785072327], [0.3750174641609192, 0.9459472894668579]]
    assert uniform((2,), seed=1, index=index, step=2, draw=3).tolist() == expected
    assert signs((8,), seed=1, index=index, step=2)[1].tolist() == [-1, 1, -1, 1, 1, -1, 1, -1]


@pytest.mark.parametrize("draw_numbers", [uniform, normal, signs])
def test_numbers_belong_to_the_example(draw_numbers):
    everything = draw_numbers((3, 5), seed=4, index=INDEX, step=6)
    order = torch.randperm(64)
    assert torch.equal(draw_numbers((3, 5), seed=4, index=INDEX[order], step=6), everything[order])
    assert torch.equal(draw_numbers((3, 5), seed=4, index=INDEX[9:10], step=6), everything[9:10])
    draws = torch.full((64,), 2)
    assert torch.equal(
        draw_numbers((3, 5), seed=4, index=INDEX, draw=draws), draw_numbers((3, 5), seed=4, index=INDEX, draw=2)
    )


def test_float32_and_float64_are_the_same_numbers():
    single, double = (uniform((50,), seed=0, index=INDEX, dtype=dtype) for dtype in (torch.float32, torch.float64))
    assert torch.equal(single.double(), double)
    assert ((single >= 0) & (single < 1)).all()


def test_the_global_generator_is_not_touched():
    before = torch.random.get_rng_state()
    normal((4,), seed=0, index=INDEX)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    ("draw_numbers", "mean", "variance", "fourth"),
    [(uniform, 0.5, 1 / 12, 1 / 80), (normal, 0, 1, 3), (signs, 0, 1, 1)],
)
def test_moments(draw_numbers, mean, variance, fourth):
    numbers = draw_numbers((4000,), seed=11, index=INDEX, dtype=torch.float64)
    error = 5 / math.sqrt(numbers.numel())
    centred = numbers - mean
    assert abs(centred.mean()) < error * math.sqrt(variance)
    assert abs(centred.square().mean() - variance) <= error * math.sqrt(max(fourth - variance**2, 0))
    assert abs(centred.pow(4).mean() - fourth) < 0.05


@pytest.mark.parametrize("draw_numbers", [uniform, normal, signs])
@pytest.mark.parametrize("neighbour", ["index", "step", "draw", "seed", "seed's high half", "element"])
def test_neighbours_are_uncorrelated(draw_numbers, neighbour):
    def numbers(seed=5, index=INDEX, step=0, draw=0):
        return draw_numbers((2000,), seed, index, step, draw, torch.float64)

    one = numbers()
    other = {
        "index": lambda: numbers(index=INDEX + 1),
        "step": lambda: numbers(step=1),
        "draw": lambda: numbers(draw=1),
        "seed": lambda: numbers(seed=6),
        "seed's high half": lambda: numbers(seed=5 + 2**32),
        "element": lambda: one.roll(1, dims=1),
    }[neighbour]()
    correlation = torch.corrcoef(torch.stack([one.flatten(), other.flatten()]))[0, 1]
    assert abs(correlation) < 5 / math.sqrt(one.numel())


def test_uniforms_fill_the_interval():
    counts = torch.histc(uniform((4000,), seed=3, index=INDEX), bins=64, min=0, max=1)
    expected = counts.sum() / 64
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 63 + 5 * math.sqrt(2 * 63)


@pytest.mark.cuda
@pytest.mark.parametrize("draw_numbers", [uniform, signs])
def test_devices_agree_bit_by_bit(draw_numbers):
    assert torch.equal(draw_numbers((50,), 2**40 + 1, INDEX, 3), draw_numbers((50,), 2**40 + 1, INDEX.cuda(), 3).cpu())


@pytest.mark.parametrize(("norm", "index"), [("Linf", 18862835), ("L2", 1224113)])
def test_a_direction_of_zero_is_no_way_out_of_the_numbers(norm, index):
    """One pixel, and a number that is exactly zero: once in 2^24 draws."""
    x, place = torch.full((1, 1), 0.5), torch.tensor([index])
    if norm == "L2":
        assert normal((1,), 0, place) == 0
    assert not random_point(x, 0.1, norm, 0, place, draw=0).isnan().any()
    assert not edge_point(x, 0.1, norm, 0, place, draw=0).isnan().any()
    assert torch.equal(_start(x, torch.tensor([0.1]), norm, 0, place, draw=torch.tensor([0])), x)
