import dataclasses
import math

import pytest
import torch
from torch.nn import functional as F

from pclc.data.augment import AUGMENTATIONS, Augmentation

ALL = Augmentation(crop_padding=2, flip=True, rotation=30.0, resized_crop=(0.3, 0.9), probability=0.7)
JUST_BELOW_ONE = 1 - 2**-24


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def bytes_of(*shape, seed=0):
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(seed))


def naive_crop_flip(images, uniforms, padding, flip):
    """One image at a time, with the tools one would use there."""
    out = []
    height, width = images.shape[2:]
    for image, row in zip(images, uniforms.tolist(), strict=True):
        top, left = (min(int(value * (2 * padding + 1)), 2 * padding) for value in row[:2])
        image = F.pad(image, (padding,) * 4)[:, top : top + height, left : left + width]
        if flip and row[2] < 0.5:
            image = image.flip(-1)
        out.append(image)
    return torch.stack(out)


@pytest.mark.parametrize("shape", [(64, 3, 8, 8), (33, 1, 7, 10)])
@pytest.mark.parametrize("padding", [1, 4])
@pytest.mark.parametrize("flip", [False, True])
def test_crop_and_flip_are_exact(shape, padding, flip):
    augmentation = Augmentation(crop_padding=padding, flip=flip)
    images, uniforms = bytes_of(*shape), augmentation.draw(shape[0], generator())
    expected = naive_crop_flip(images, uniforms, padding, flip)
    out = augmentation(images, uniforms)
    assert out.dtype == torch.float32
    assert torch.equal(out, expected.float() / 255)
    last = images.contiguous(memory_format=torch.channels_last)
    assert torch.equal(augmentation(last, uniforms), out)
    for dtype in (torch.float64, torch.bfloat16):  # floating point keeps its dtype
        exact = augmentation(images.to(dtype), uniforms)
        assert exact.dtype == dtype
        assert torch.equal(exact, expected.to(dtype))


def test_flip_alone():
    augmentation = Augmentation(flip=True)
    images = bytes_of(2, 3, 4, 4)
    out = augmentation(images, torch.tensor([[0.4999], [0.5]])) * 255
    assert torch.equal(out[0], images[0].flip(-1).float())
    assert torch.equal(out[1], images[1].float())


def test_crop_offsets_are_all_of_0_to_2p_and_equally_likely():
    """A single bright pixel shows where the window was."""
    n, padding = 8100, 1
    images = torch.zeros(n, 1, 3, 3)
    images[:, :, 1, 1] = 1
    augmentation = Augmentation(crop_padding=padding)
    places = augmentation(images, augmentation.draw(n, generator())).flatten(1).argmax(1)
    counts = places.bincount(minlength=9)
    assert (counts - n / 9).abs().max() < 5 * math.sqrt(n / 9)


def test_the_largest_uniform_is_the_last_offset():
    images = bytes_of(1, 1, 8, 8)
    for padding in range(1, 9):
        out = Augmentation(crop_padding=padding)(images, torch.full((1, 2), JUST_BELOW_ONE)) * 255
        last = F.pad(images, (padding,) * 4)[:, :, 2 * padding :, 2 * padding :]
        assert torch.equal(out, last.float())


def test_about_half_is_flipped():
    n = 4000
    images = torch.tensor([0.0, 1.0]).expand(n, 1, 1, 2)
    augmentation = Augmentation(flip=True)
    flipped = augmentation(images, augmentation.draw(n, generator()))[:, 0, 0, 0].sum().item()
    assert abs(flipped - n / 2) < 5 * math.sqrt(n / 4)


@pytest.mark.parametrize(("uniform", "turns"), [(0.0, -1), (0.5, 0), (1.0, 1)])
def test_right_angles_are_exact_turns(uniform, turns):
    """With rotation=90 the ends and the middle of the range are known without any interpolation."""
    images = torch.rand(2, 3, 8, 8, generator=generator())
    out = Augmentation(rotation=90.0)(images, torch.full((2, 1), uniform))
    torch.testing.assert_close(out, images.rot90(turns, dims=(2, 3)), rtol=0, atol=1e-5)


def naive_affine(image, row, augmentation):
    """affine_grid on one image in float64, from 3 x 3 matrices that map places in the output to places in the input."""
    row = iter(row.double().tolist())
    height, width = image.shape[1:]
    places = 2 * augmentation.crop_padding + 1
    if augmentation.probability < 1 and next(row) >= augmentation.probability:
        return image.double()
    down, right = (min(int(next(row) * places), places - 1) - augmentation.crop_padding for _ in range(2))
    mirror = -1.0 if next(row) < 0.5 else 1.0
    angle = math.radians(augmentation.rotation) * (2 * next(row) - 1)
    low, high = augmentation.resized_crop
    share, aspect = low + (high - low) * next(row), (3 / 4) * (16 / 9) ** next(row)
    window_x, window_y = min(math.sqrt(share * aspect), 1), min(math.sqrt(share / aspect), 1)
    left, top = (1 - window_x) * next(row), (1 - window_y) * next(row)  # share of the side before the window

    def matrix(*rows):
        return torch.tensor([*rows, [0, 0, 1]], dtype=torch.float64)

    crop = matrix([1, 0, 2 * right / width], [0, 1, 2 * down / height])
    flip = matrix([mirror, 0, 0], [0, 1, 0])
    pixels = torch.diag(torch.tensor([width / 2, height / 2, 1], dtype=torch.float64))
    turn = matrix([math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0])
    window = matrix([window_x, 0, 2 * left + window_x - 1], [0, window_y, 2 * top + window_y - 1])
    theta = crop @ flip @ pixels.inverse() @ turn @ pixels @ window
    grid = F.affine_grid(theta[None, :2], [1, *image.shape], align_corners=False)
    return F.grid_sample(image[None].double(), grid, padding_mode="zeros", align_corners=False)[0]


@pytest.mark.parametrize("shape", [(24, 3, 16, 16), (24, 1, 12, 20)])
def test_everything_together_against_single_images(shape):
    images, uniforms = bytes_of(*shape), ALL.draw(shape[0], generator(1))
    out = ALL(images, uniforms)
    expected = torch.stack([naive_affine(image, row, ALL) for image, row in zip(images / 255, uniforms, strict=True)])
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, expected.float(), rtol=0, atol=1e-4)


def test_a_crop_is_the_same_exactly_and_by_sampling():
    images = bytes_of(16, 3, 8, 8)
    exact, sampled = Augmentation(crop_padding=2, flip=True), Augmentation(crop_padding=2, flip=True, rotation=1e-6)
    uniforms = sampled.draw(16, generator())
    torch.testing.assert_close(sampled(images, uniforms), exact(images, uniforms[:, :3]), rtol=0, atol=1e-5)


def test_a_resized_crop_of_everything_is_the_image_and_of_a_quarter_its_enlargement():
    images = torch.rand(1, 1, 8, 8, generator=generator())
    half = 0.5  # of the log-uniform aspect: square
    whole = Augmentation(resized_crop=(1.0, 1.0))(images, torch.tensor([[0.3, half, 0.2, 0.9]]))
    torch.testing.assert_close(whole, images, rtol=0, atol=1e-5)
    corner = Augmentation(resized_crop=(0.25, 0.25))(images, torch.tensor([[0.3, half, 0.0, JUST_BELOW_ONE]]))
    enlarged = F.interpolate(images[:, :, 4:, :4], scale_factor=2, mode="bilinear")  # lower left
    torch.testing.assert_close(corner[:, :, 1:-1, 1:-1], enlarged[:, :, 1:-1, 1:-1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("augmentation", [*AUGMENTATIONS.values(), ALL])
def test_an_image_is_changed_alike_in_every_batch(augmentation):
    images, uniforms = bytes_of(16, 3, 16, 16), augmentation.draw(16, generator())
    together = augmentation(images, uniforms)
    alone = torch.cat([augmentation(images[i : i + 1], uniforms[i : i + 1]) for i in range(16)])
    order = torch.randperm(16, generator=generator())
    assert torch.equal(together, alone)
    assert torch.equal(together[order], augmentation(images[order], uniforms[order]))


@pytest.mark.parametrize("augmentation", [*AUGMENTATIONS.values(), ALL])
def test_compiles_without_graph_breaks(augmentation):
    images, uniforms = bytes_of(4, 3, 16, 16), augmentation.draw(4, generator())
    compiled = torch.compile(augmentation.__call__, backend="eager", fullgraph=True)
    assert torch.equal(compiled(images, uniforms), augmentation(images, uniforms))


@pytest.mark.parametrize("augmentation", [*AUGMENTATIONS.values(), ALL])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_images_stay_in_the_unit_box_and_the_input_is_left_alone(augmentation, dtype):
    images = torch.full((256, 1, 16, 16), 255 if dtype == torch.uint8 else 1, dtype=dtype)
    out = augmentation(images, augmentation.draw(256, generator()))
    assert out.shape == images.shape
    assert out.min() >= 0
    assert out.max() == 1
    assert (images == images.max()).all()


def test_rounding_in_the_sampling_does_not_leave_the_unit_box(monkeypatch):
    overshoot = torch.tensor([1 + 2**-23, -(2**-30)]).view(1, 1, 1, 2)
    monkeypatch.setattr("torch.nn.functional.grid_sample", lambda *_, **__: overshoot)
    out = Augmentation(rotation=10.0)(torch.ones(1, 1, 1, 2), torch.zeros(1, 1))
    assert out.flatten().tolist() == [1, 0]


@pytest.mark.parametrize("change", [{"crop_padding": 4}, {"rotation": 90.0}])
def test_the_share_that_is_not_chosen_stays_bit_equal(change):
    n = 2000
    images = bytes_of(1, 1, 6, 6).expand(n, -1, -1, -1)
    augmentation = Augmentation(**change, probability=0.8)
    uniforms = augmentation.draw(n, generator())
    out = augmentation(images, uniforms)
    chosen = uniforms[:, 0] < 0.8
    assert torch.equal(out[~chosen], images[~chosen].float() / 255)
    always = dataclasses.replace(augmentation, probability=1.0)
    assert torch.equal(out[chosen], always(images, uniforms[:, 1:])[chosen])
    assert abs(chosen.sum().item() - 0.8 * n) < 5 * math.sqrt(n * 0.16)


def test_the_identity_draws_nothing_and_only_scales():
    images = bytes_of(4, 3, 8, 8)
    for identity in (Augmentation(), Augmentation(probability=0.5), Augmentation(flip=True, probability=0.0)):
        assert identity.columns == 0
        assert torch.equal(identity(images, identity.draw(4, generator())), images.float() / 255)


def test_columns_and_draw():
    assert [AUGMENTATIONS[name].columns for name in ("none", "crop", "crop-flip", "authors")] == [0, 2, 3, 7]
    assert ALL.columns == 9
    uniforms = ALL.draw(1000, generator())
    assert uniforms.shape == (1000, 9)
    assert uniforms.dtype == torch.float32
    assert 0 <= uniforms.min() < 0.01 < 0.99 < uniforms.max() < 1
    assert torch.equal(uniforms, ALL.draw(1000, generator()))
