"""Augmentation of whole batches on their device: random crops, flips, rotations and resized crops.

The random numbers come from outside (`draw`, one row for each image). The rest is a pure function of images and numbers
without data-dependent control flow: it compiles, can be captured in a CUDA graph, and treats an image the same in every
batch.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

_ASPECTS = (3 / 4, 4 / 3)  # of resized crops, width to height: torchvision's default


@dataclass(frozen=True)
class Augmentation:
    """Random changes of images, applied in this order: crop, flip, rotation, resized crop.

    Args:
        crop_padding: p > 0 pads each side with p zeros and crops to the old size at one of (2 p + 1)² places,
            uniformly.
        flip: mirror left and right with probability one half.
        rotation: rotate about the centre by an angle uniform in ± this many degrees.
        resized_crop: (smallest, largest) share of the area. A window whose share is uniform in this range, whose aspect
            ratio (times the image's own) is log-uniform in 3/4 to 4/3 and whose place is uniform is enlarged to the old
            size. As torchvision's RandomResizedCrop, but a window that would stick out is cut instead of redrawn.
        probability: share of the images that are changed at all.

    With rotation or resized crop the image is sampled once, bilinearly, through the composition of all changes; outside
    the image is zero. Crop and flip alone only move pixels, exactly.

    Example:
        >>> augmentation = Augmentation(crop_padding=4, flip=True)
        >>> images = torch.zeros(8, 3, 32, 32, dtype=torch.uint8)
        >>> uniforms = augmentation.draw(8, torch.Generator().manual_seed(0))
        >>> augmentation(images, uniforms).dtype
        torch.float32
    """

    crop_padding: int = 0
    flip: bool = False
    rotation: float = 0.0
    resized_crop: tuple[float, float] | None = None
    probability: float = 1.0

    @property
    def columns(self) -> int:
        """How many random numbers an image needs; 0 for the identity."""
        # Conditions, not products of comparisons, which dynamo of torch 2.11 cannot trace.
        changes = (2 if self.crop_padding > 0 else 0) + (1 if self.flip else 0)
        changes += (1 if self.rotation > 0 else 0) + (4 if self.resized_crop is not None else 0)
        if not changes or self.probability == 0:
            return 0
        return changes + (1 if self.probability < 1 else 0)

    def draw(self, n: int, generator: torch.Generator) -> Tensor:
        """Draw the random numbers of n images, uniform in [0, 1): (n, columns), float32, on the CPU.

        It is the CPU's generator so that a seed gives the same images on every device.
        """
        return torch.rand(n, self.columns, generator=generator, device="cpu")

    def __call__(self, images: Tensor, uniforms: Tensor) -> Tensor:
        """Change images (B, C, H, W) according to the rows of `uniforms` (B, columns), on the same device.

        uint8 images are returned as float32 in [0, 1]; floating-point images, in [0, 1], keep their dtype.
        """
        if self.columns == 0:
            return _to_unit(images)
        column = iter(uniforms.unbind(1))
        chosen = next(column) < self.probability if self.probability < 1 else None

        none = torch.zeros_like(uniforms[:, 0])
        down = self._shift(next(column)) if self.crop_padding else none
        right = self._shift(next(column)) if self.crop_padding else none
        flip = next(column) < 0.5 if self.flip else torch.zeros_like(none, dtype=torch.bool)

        if self.rotation == 0 and self.resized_crop is None:
            changed = _to_unit(_move(images, down, right, flip))
        else:
            angle = (2 * next(column) - 1) * math.radians(self.rotation) if self.rotation else none
            window = None
            if self.resized_crop is not None:
                window = _window(next(column), next(column), next(column), next(column), self.resized_crop)
            changed = _resample(_to_unit(images), down, right, flip, angle, window)

        return changed if chosen is None else torch.where(chosen.view(-1, 1, 1, 1), changed, _to_unit(images))

    def _shift(self, uniform: Tensor) -> Tensor:
        """Map [0, 1) to the whole numbers -p … p, all equally likely."""
        # A float32 below 1 times a whole number stays below that number, rounded or not: 2 p + 1 is never reached.
        return (uniform * (2 * self.crop_padding + 1)).floor() - self.crop_padding


AUGMENTATIONS = {
    "none": Augmentation(),
    "crop": Augmentation(crop_padding=4),
    "crop-flip": Augmentation(crop_padding=4, flip=True),
    # The authors' for Tiny ImageNet. Their resized crop is torchvision's with its defaults, 8 to 100 % of the area:
    # harsh at 64 x 64, where the smallest windows have 18 x 18 pixels, but theirs.
    "authors": Augmentation(flip=True, rotation=10.0, resized_crop=(0.08, 1.0), probability=0.8),
}


def _to_unit(images: Tensor) -> Tensor:
    return images.float() / 255 if images.dtype == torch.uint8 else images


def _move(images: Tensor, down: Tensor, right: Tensor, flip: Tensor) -> Tensor:
    """Crop at (down, right), then mirror: out[i, j] = image[i + down, j' + right], j' = W - 1 - j where mirrored.

    One gather in the images' own dtype; places outside the image are zero.
    """
    batch, channels, height, width = images.shape
    rows = torch.arange(height, device=images.device)
    columns = torch.arange(width, device=images.device)
    row = rows + down.long()[:, None]
    column = torch.where(flip[:, None], width - 1 - columns, columns) + right.long()[:, None]
    outside = ((row < 0) | (row >= height))[:, :, None] | ((column < 0) | (column >= width))[:, None, :]
    place = row.clamp(0, height - 1)[:, :, None] * width + column.clamp(0, width - 1)[:, None, :]
    moved = images.flatten(2).gather(2, place.view(batch, 1, -1).expand(-1, channels, -1))
    return moved.view(images.shape).masked_fill(outside[:, None], 0)


Window = tuple[Tensor, Tensor, Tensor, Tensor]  # centre x, centre y, width, height; (B,) each


def _window(area: Tensor, aspect: Tensor, x: Tensor, y: Tensor, shares: tuple[float, float]) -> Window:
    """Map four uniforms to a window inside the square [-1, 1]²; an image's own width and height count as 1."""
    smallest, largest = shares
    low, high = (math.log(value) for value in _ASPECTS)
    share = smallest + (largest - smallest) * area
    half_log_aspect = (low + (high - low) * aspect) / 2
    width = (share.sqrt() * half_log_aspect.exp()).clamp(max=1)
    height = (share.sqrt() * (-half_log_aspect).exp()).clamp(max=1)
    return (1 - width) * (2 * x - 1), (1 - height) * (2 * y - 1), width, height


def _resample(
    images: Tensor, down: Tensor, right: Tensor, flip: Tensor, angle: Tensor, window: Window | None
) -> Tensor:
    """Sample float images once, bilinearly, where the inverse of crop, flip, rotation and window takes each pixel.

    Coordinates are those of grid_sample (align_corners=False): x and y in [-1, 1] from edge to edge. They are computed
    by element, not by affine_grid, whose matrix product loses pixels to TF32 and autocast.
    """
    height, width = images.shape[2:]
    x = ((2 * torch.arange(width, device=images.device) + 1) / width - 1).view(1, 1, -1)
    y = ((2 * torch.arange(height, device=images.device) + 1) / height - 1).view(1, -1, 1)
    if window is not None:
        centre_x, centre_y, share_x, share_y = (value.view(-1, 1, 1) for value in window)
        x, y = centre_x + share_x * x, centre_y + share_y * y
    # The rotation is one of pixels: where the image is not square, x and y have different units.
    cos, sin = angle.cos().view(-1, 1, 1), angle.sin().view(-1, 1, 1)
    x, y = cos * x - sin * (height / width) * y, sin * (width / height) * x + cos * y
    x = torch.where(flip.view(-1, 1, 1), -x, x)
    x = x + (2 / width) * right.view(-1, 1, 1)
    y = y + (2 / height) * down.view(-1, 1, 1)
    grid = torch.stack((x, y), dim=-1)
    sampled = F.grid_sample(images.float(), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    # The four weights sum to 1 only up to rounding, and an attack refuses what is outside [0, 1] by however little.
    return sampled.clamp(0, 1).to(images.dtype)
