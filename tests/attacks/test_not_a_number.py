"""Gradients and logits that are NaN: attacks end, images stay images, and no class is favoured."""

import pytest
import torch
from torch import Tensor, nn

from pclc.attacks import APGD, FAB, PGD, SPSA, AutoAttack, ZeroGradientWarning
from pclc.attacks.decide import is_fooled
from pclc.attacks.types import Norm


class Root(nn.Module):
    """Logits through a square root, whose derivative at a black pixel is NaN."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(torch.where(x > 0, x.sqrt(), torch.zeros_like(x)))  # type: ignore[no-any-return]


def images() -> tuple[Root, Tensor, Tensor]:
    x = torch.rand(20, 6, generator=torch.Generator().manual_seed(1))
    x[:, 0] = 0.0
    model = Root()
    return model, x, model(x).argmax(1)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("attack", [PGD, APGD, FAB, AutoAttack])
def test_images_stay_images_and_attacks_end(attack: type, norm: Norm) -> None:
    model, x, y = images()
    settings = {"alpha": 0.1, "steps": 10} if attack is PGD else {}
    result = attack(0.9, norm=norm, **settings).run(model, x, y)
    assert not result.x_adv.isnan().any()
    assert result.success.any(), "the other pixels still lead somewhere"
    assert torch.equal(result.success, is_fooled(model, result.x_adv, y))


class Gamma(Root):
    """Logits that are NaN outside of the box, where SPSA asks."""

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x.pow(1 / 2.2))  # type: ignore[no-any-return]


def test_spsa_stays_in_the_box_where_there_is_nothing_outside() -> None:
    x = torch.rand(20, 6, generator=torch.Generator().manual_seed(1)) * 0.8 + 0.1
    x[0, 0] = 0.0
    model = Gamma()
    y = model(x).argmax(1)
    with pytest.warns(ZeroGradientWarning):  # the black pixel's image: no sample of it has a slope
        result = SPSA(eps=0.09, lr=0.03, steps=5, samples=16).run(model, x, y)
    assert not result.x_adv.isnan().any()
    assert torch.equal(result.x_adv[0], x[0])
    assert not result.success[0], "an image without numbers would be no class, and a success"
    assert result.success.any()


def test_what_is_not_a_number_is_no_class() -> None:
    y = torch.tensor([0, 1, 2])
    nothing = torch.full((3, 3), float("nan"))
    assert is_fooled(lambda x: nothing, torch.rand(3, 2), y).tolist() == [True, True, True]
    assert is_fooled(lambda x: nothing, torch.rand(3, 2), y, targeted=True).tolist() == [False, False, False]
