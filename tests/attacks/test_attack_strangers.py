"""Models that do what ours do not: they are attacked as they are, and left as they were."""

import copy
import threading
from collections.abc import Iterator

import pytest
import torch
from attack_zoo import ZOO, SmallNet, examples
from torch import Tensor, nn

import pclc
from pclc.attacks import BIM, FAB, FGSM, PGD, AutoAttack, Square
from pclc.attacks.frozen import frozen
from pclc.execution import Execution, made_ready
from pclc.execution.settings import Precision

ATTACKS = [FGSM(eps=0.1), PGD(eps=0.1, alpha=0.03, steps=5), Square(eps=0.1, queries=20)]


class Writes(nn.Module):
    """Writes into its input."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x.mul_(0.5).add_(0.1))  # type: ignore[no-any-return]


class Reads(Writes):
    """The same function."""

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x * 0.5 + 0.1)  # type: ignore[no-any-return]


class SameMemory:
    """Gives every answer in the same place, as runtimes with buffers do."""

    def __init__(self, model: nn.Module) -> None:
        self.model, self.buffer = model, torch.empty(0)

    def __call__(self, x: Tensor) -> Tensor:
        logits = self.model(x)
        if logits.requires_grad:
            return logits  # type: ignore[no-any-return]
        if self.buffer.shape != logits.shape:
            self.buffer = torch.empty_like(logits)
        return self.buffer.copy_(logits)


WITH_AUTOATTACK = [*ATTACKS, AutoAttack(eps=0.1, version="custom", attacks=(Square(eps=0.1, queries=20),))]


@pytest.mark.parametrize("attack", WITH_AUTOATTACK, ids=str)
def test_a_model_that_writes_into_its_input(attack: pclc.attacks.Attack) -> None:
    net = SmallNet().eval()
    x, y = examples(net, dtype=torch.float32)
    before = x.clone()
    ours, reference = (attack.run(model, x, y, seed=0) for model in (Writes(net), Reads(net)))
    assert torch.equal(x, before)
    assert torch.equal(ours.x_adv, reference.x_adv)
    assert torch.equal(ours.success, reference.success)


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_a_model_that_gives_the_same_memory_again(attack: pclc.attacks.Attack) -> None:
    net, execution = SmallNet().eval(), Execution(device="cpu", batch_size=2)
    x, y = examples(net, dtype=torch.float32)
    ours, reference = (attack.run(model, x, y, seed=0, execution=execution) for model in (SameMemory(net), net))
    assert torch.equal(ours.success, reference.success)
    assert torch.equal(ours.x_adv, reference.x_adv)


class Merging(nn.Linear):
    """Adds something to its weights in eval mode and takes it away in train mode, as LoRA does."""

    def __init__(self) -> None:
        super().__init__(4, 3)
        self.is_merged = False

    def train(self, mode: bool = True) -> "Merging":
        if mode == self.is_merged:
            self.weight.data += -1 if mode else 1
            self.is_merged = not mode
        super().train(mode)
        return self


def test_layers_that_merge_weights_in_eval_mode_part_them_again() -> None:
    model = nn.Sequential(Merging(), nn.Dropout()).train()
    before = model[0].weight.detach().clone()
    with frozen(model):
        assert not torch.equal(model[0].weight, before)
    torch.testing.assert_close(model[0].weight.detach(), before)
    assert [module.training for module in model.modules()] == [True, True, True]


def test_images_or_logits_in_float64_do_not_make_a_model_exact() -> None:
    """What bf16 nominates is decided in float32, whatever the type of the images and of the logits."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).eval()

    def cast(x: Tensor) -> Tensor:
        return net(x.float())  # type: ignore[no-any-return]

    x = torch.rand(400, 1, 8, 8)
    y = net(x).argmax(1)
    plain, images, logits = (
        BIM(eps=0.02, alpha=0.002, steps=20).run(model, x, y, execution=Execution(device="cpu", precision="bf16"))
        for model, x in ((cast, x), (cast, x.double()), (Cast(net, torch.float64), x))
    )
    least = int(plain.success.sum()) - 1
    assert min(int(images.success.sum()), int(logits.success.sum())) >= least, "nobody is left alone who is not fooled"


def tricky() -> Iterator[nn.Module]:
    conv, norm = nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16)
    yield torch.fx.symbolic_trace(nn.Sequential(conv, norm))
    yield nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Conv2d(16, 16, 1)), nn.Conv2d(16, 16, 3), norm)
    mixed = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16)).eval()
    mixed[0].train()
    yield mixed


@pytest.mark.parametrize("model", list(tricky()), ids=["fx", "parametrized", "conv in train mode"])
def test_what_is_made_ready_is_the_same_and_the_model_stays(model: nn.Module) -> None:
    modes = [module.training for module in model.modules()]
    if all(modes):
        model.eval()
    x = torch.rand(2, 16, 8, 8)
    ready = made_ready(model, Execution(device="cpu"))
    torch.testing.assert_close(ready(x), model(x), rtol=1e-4, atol=1e-5)
    if isinstance(model, torch.fx.GraphModule):
        assert model.graph.owning_module is model


def test_parameters_of_inference_mode() -> None:
    with torch.inference_mode():
        net = SmallNet().eval()
    x, y = examples(SmallNet(), dtype=torch.float32)
    before = [parameter.requires_grad for parameter in net.parameters()]
    AutoAttack(eps=0.05, version="custom", attacks=(Square(eps=0.05, queries=5),)).run(net, x, y)
    assert [parameter.requires_grad for parameter in net.parameters()] == before


def test_gradients_of_a_model_from_inference_mode() -> None:
    with torch.inference_mode():
        net = SmallNet().eval()
    x, y = examples(SmallNet(), dtype=torch.float32)
    with pytest.raises(ValueError, match=r"made outside of torch.inference_mode\(\), .* use copy.deepcopy\(model\)"):
        FGSM(eps=0.1).run(net, x, y)
    assert FGSM(eps=0.1).run(copy.deepcopy(net), x, y).backwards > 0, "the advice helps"


class Cast(nn.Module):
    """Gives logits of another type than its images have."""

    def __init__(self, model: nn.Module, dtype: torch.dtype) -> None:
        super().__init__()
        self.model, self.dtype = model, dtype

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).to(self.dtype)  # type: ignore[no-any-return]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
@pytest.mark.parametrize("name", [name for name in ZOO if name != "transfer"])  # whose substitute is in float64
def test_logits_of_another_type_than_the_images(name: str, dtype: torch.dtype) -> None:
    net, attack = SmallNet().eval(), ZOO[name]()
    x, y = examples(net, dtype=torch.float32)
    cast, plain = (attack.run(model, x, y) for model in (Cast(net, dtype), net))
    assert cast.x_adv.dtype == torch.float32
    assert abs(int(cast.success.sum()) - int(plain.success.sum())) <= 1


def test_threads_take_turns_with_a_model() -> None:
    """The first to leave put it into training mode under the other, and attacks in threads fooled fewer images."""
    model = nn.Dropout().train()
    first_is_in, second_is_in = threading.Event(), threading.Event()

    def first() -> None:
        with frozen(model):
            first_is_in.set()
            second_is_in.wait(0.2)

    thread = threading.Thread(target=first)
    thread.start()
    first_is_in.wait()
    with frozen(model):
        second_is_in.set()
        thread.join()
        assert not model.training
    assert model.training


def scripts(net: nn.Module, x: Tensor) -> dict[str, nn.Module]:
    """What `torch.jit` makes of a model."""
    script, trace = torch.jit.script(net), torch.jit.trace(net, x[:2])
    frozen = {"frozen script": torch.jit.freeze(script), "frozen trace": torch.jit.freeze(trace)}
    return {"script": script, "trace": trace, **frozen, "wrapped": nn.Sequential(torch.jit.freeze(script))}


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("name", ["script", "trace", "frozen script", "frozen trace", "wrapped"])
def test_what_torch_jit_makes_of_a_model(name: str) -> None:
    net = SmallNet().eval()
    x, y = examples(net, dtype=torch.float32)
    model = scripts(net, x)[name]
    for attack in (*ATTACKS, FAB(eps=0.1, steps=5)):
        ours, reference = attack.run(model, x, y), attack.run(net, x, y)
        assert torch.equal(ours.success, reference.success)
        torch.testing.assert_close(ours.x_adv, reference.x_adv)


class Views(nn.Module):
    """Makes rows with `view`, which cannot be done with what is channels last."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 8, 3), nn.Conv2d(8, 16, 3)
        self.last = nn.Linear(16 * 4 * 4, 5)

    def forward(self, x: Tensor) -> Tensor:
        features = self.second(self.first(x).relu()).relu()
        return self.last(features.view(len(x), -1))  # type: ignore[no-any-return]


class Reshapes(Views):
    """The same function, with code that copes with any layout."""

    def forward(self, x: Tensor) -> Tensor:
        features = self.second(self.first(x).relu()).relu()
        return self.last(features.reshape(len(x), -1))  # type: ignore[no-any-return]


@pytest.mark.parametrize("attack", WITH_AUTOATTACK, ids=str)
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_model_that_makes_rows_with_view(
    attack: pclc.attacks.Attack, channels: int, precision: Precision, layout: torch.memory_format
) -> None:
    torch.manual_seed(0)
    model, other = Views(channels).eval(), Reshapes(channels).eval()
    other.load_state_dict(model.state_dict())
    x = torch.rand(20, channels, 8, 8)
    y = model(x).argmax(1)
    model.to(memory_format=layout)
    before = [(parameter.data_ptr(), parameter.stride()) for parameter in model.parameters()]
    execution = Execution(device="cpu", precision=precision)
    ours, reference = (attack.run(each, x, y, execution=execution).success for each in (model, other))
    assert (ours != reference).sum() <= 1
    assert [(parameter.data_ptr(), parameter.stride()) for parameter in model.parameters()] == before


def test_such_a_model_is_trained_evaluated_and_audited() -> None:
    digits = pclc.load_dataset("digits").subset(torch.arange(300))
    model = Views(1)
    model.last = nn.Linear(16 * 4 * 4, 10)
    execution = Execution(device="cpu")
    config = pclc.training.adversarial_config("digits", "madry-mnist", epochs=2, validation=0.1)
    model = pclc.train(model, digits, config, execution=execution).model
    x, y = digits.images[:40].float() / 255, digits.labels[:40]
    assert pclc.evaluate(model, x, y, [PGD(eps=0.1, alpha=0.03, steps=3)], execution=execution).n == 40
    assert pclc.audit(model, x, y, eps=0.1, mode="quick", execution=execution).verdict


@pytest.mark.cuda
@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_such_a_model_on_cuda(attack: pclc.attacks.Attack) -> None:
    torch.manual_seed(0)
    model, other = Views(3).eval().cuda(), Reshapes(3).eval().cuda()
    other.load_state_dict(model.state_dict())
    x = torch.rand(200, 3, 8, 8, device="cuda")
    y = model(x).argmax(1)
    ours, reference = (attack.run(each, x, y).success for each in (model, other))
    assert (ours != reference).sum() <= 2
