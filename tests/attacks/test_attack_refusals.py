"""Every refusal and every warning: a sentence with the argument, what was expected and what came."""

import pytest
import torch
from attack_zoo import SmallNet, examples
from torch import nn

from pclc.attacks import (
    BIM,
    DDN,
    FAB,
    FGSM,
    MIM,
    PGD,
    SPSA,
    AutoAttack,
    CarliniWagner,
    Noise,
    ProbabilityWarning,
    TrainModeWarning,
    Transfer,
    UnreachableWarning,
    parse_attack,
)
from pclc.attacks.registry import register_attack

ATTACK = FGSM(eps=0.1)
NAN = float("nan")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FGSM(eps=-0.1), r"`eps` to be a finite number of at least 0, but got -0\.1"),
        (lambda: FGSM(eps=NAN), r"`eps` to be a finite number of at least 0, but got nan"),
        (lambda: FGSM(eps="8/255"), r"`eps` to be a finite number of at least 0, but got '8/255'"),
        (lambda: FGSM(eps=True), r"`eps` to be a finite number of at least 0, but got True"),
        (lambda: FGSM(eps=8), r"`eps` to be at most 1 in Linf, .* but got 8\. Did you mean 8/255\?"),
        (lambda: FGSM(eps=0.1, norm="L1"), r'`norm` to be "Linf" or "L2", but got \'L1\''),
        (lambda: FGSM(eps=0.1, stop="always"), r'`stop` to be "success" or "never", but got \'always\''),
        (lambda: FGSM(eps=0.1, targeted=1), r"`targeted` to be True or False, but got 1"),
        (lambda: FGSM(eps=0.1, objective="xe"), r"`objective` to be one of .*, but got 'xe'"),
        (lambda: BIM(eps=0.1, alpha=0, steps=1), r"`alpha` to be a finite number above 0, but got 0"),
        (lambda: BIM(eps=0.1, alpha=0.1, steps=0), r"`steps` to be a whole number of at least 1, but got 0"),
        (lambda: PGD(eps=0.1, alpha=0.1, steps=1.5), r"`steps` to be a whole number of at least 1, but got 1\.5"),
        (lambda: PGD(eps=0.1, alpha=0.1, steps=True), r"`steps` to be a whole number of at least 1, but got True"),
        (lambda: PGD(eps=0.1, alpha=0.1, steps=1, random_start="no"), r"`random_start` to be True or False"),
        (lambda: PGD(eps=0.1, alpha=0.1, steps=1, restarts=0), r"`restarts` to be a whole number of at least 1"),
        (
            lambda: PGD(eps=0.1, alpha=0.1, steps=1, restarts=3, random_start=False),
            r"`restarts` to be 1 without random_start, but got 3 equal attempts",
        ),
        (lambda: MIM(eps=0.1, alpha=0.1, steps=1, decay=-1), r"`decay` to be a finite number of at least 0"),
        (lambda: CarliniWagner(confidence=-1), r"`confidence` to be a finite number of at least 0"),
        (lambda: CarliniWagner(space="image"), r"`space` to be"),
        (lambda: CarliniWagner(nearest=1), r"`nearest` to be"),
        (lambda: CarliniWagner(abort_early=1), r"`abort_early` to be"),
        (lambda: CarliniWagner(lr=0), r"`lr` to be a finite number above 0"),
        (lambda: CarliniWagner(search_steps=0), r"`search_steps` to be a whole number of at least 1"),
        (lambda: CarliniWagner(initial_const=0), r"`initial_const` to be a finite number above 0"),
        (lambda: SPSA(eps=0.1, delta=0), r"`delta` to be a finite number above 0"),
        (lambda: SPSA(eps=0.1, samples=0), r"`samples` to be a whole number of at least 1"),
        (lambda: Noise(eps=0.1, draws=0), r"`draws` to be a whole number of at least 1"),
        (lambda: Transfer("fgsm", nn.Linear(1, 1)), r"`attack` to be an attack such as PGD, but got a str"),
        (lambda: Transfer(ATTACK, "model"), r"`substitute` to be a model, but got a str"),
        (lambda: register_attack("PGD 2"), r"`name` to be one word in lower case, but got 'PGD 2'"),
        (lambda: register_attack("pgd"), r"`name` to be new, but an attack 'pgd' is registered already"),
    ],
)
def test_settings(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def changed(tensor, value):
    tensor = tensor.clone()
    tensor.view(-1)[-1] = value
    return tensor


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            lambda x, y: (changed(x, 1.5), y),
            ValueError,
            r"`x` to have values in \[0, 1\], but got values in \[0, 1\.5\]",
        ),
        (
            lambda x, y: (changed(x, -0.1), y),
            ValueError,
            r"`x` to have values in \[0, 1\], but got values in \[-0\.1, 1\]",
        ),
        (lambda x, y: (changed(x, NAN), y), ValueError, r"`x` to have values in \[0, 1\], but got NaN"),
        (lambda x, y: (changed(x, float("inf")), y), ValueError, r"`x` to have values in \[0, 1\], but got .* inf\]"),
        (lambda x, y: ((255 * x).byte(), y), TypeError, r"`x` to be float32 or float64 .*, but got torch\.uint8"),
        (lambda x, y: (x.half(), y), TypeError, r"`x` to be float32 or float64 .*, but got torch\.float16"),
        (lambda x, y: (x[:, 0, 0, 0], y), ValueError, r"`x` to be of shape \(N, C, H, W\) .*, but got \(12,\)"),
        (lambda x, y: (x, y.int()), TypeError, r"`y` to hold class indices \(int64\), but got torch\.int32"),
        (lambda x, y: (x, y[:5]), ValueError, r"`y` to be of shape \(12,\), one label for each image, but got \(5,\)"),
        (lambda x, y: (x, y[:, None]), ValueError, r"`y` to be of shape \(12,\), .* but got \(12, 1\)"),
        (lambda x, y: (x, changed(y, -1)), ValueError, r"every label in `y` to be at least 0, but got -1"),
        (
            lambda x, y: (x, changed(y, 4)),
            ValueError,
            r"every label in `y` to lie in \[0, 3\], because the model has 4 classes, but got 4",
        ),
        (lambda x, y: (x.to("meta"), y), ValueError, r"`x` and `y` on one device, but got meta and cpu"),
    ],
)
def test_examples(change, error, message):
    model = SmallNet().eval()
    with pytest.raises(error, match=message):
        ATTACK(model, *change(*examples(model, dtype=torch.float32)))


@pytest.mark.parametrize(
    "make",
    [lambda m: PGD(m, eps=0.1, alpha=0.01, steps=40), FGSM, lambda m: AutoAttack(m, norm="Linf", eps=0.1), FAB, DDN],
)
def test_a_model_where_settings_are_expected(make):
    """As other libraries have it."""
    message = r"`\w+` of \w+ to be a number, but got a model\. .* x_adv = attack\(model, x, y\)"
    with pytest.raises(TypeError, match=message):
        make(SmallNet())


def test_an_attack_of_your_own_may_hold_a_model():
    class Guided(FGSM):
        def __init__(self, guide, eps):
            super().__init__(eps)
            object.__setattr__(self, "guide", guide)

    net = SmallNet()
    assert Guided(net, 0.1).guide is net


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, True, None])
def test_seed(seed):
    model = SmallNet().eval()
    with pytest.raises(ValueError, match=r"`seed` to be a whole number in \[0, 2\^64\), but got"):
        ATTACK(model, *examples(model, dtype=torch.float32), seed=seed)


@pytest.mark.parametrize(
    ("index", "message"),
    [
        (torch.arange(5), r"`index` to be int64 of shape \(12,\), .* but got torch\.int64 of shape \(5,\)"),
        (torch.arange(12.0), r"`index` to be int64 of shape \(12,\), .* but got torch\.float32"),
        (torch.arange(12) - 1, r"every number in `index` to lie in \[0, 2\^32\), but got values in \[-1, 10\]"),
        (torch.arange(12) + 2**32, r"every number in `index` to lie in \[0, 2\^32\)"),
    ],
)
def test_index(index, message):
    model = SmallNet().eval()
    with pytest.raises(ValueError, match=message):
        ATTACK(model, *examples(model, dtype=torch.float32), index=index)


@pytest.mark.parametrize("index", [list(range(12)), torch.arange(12).numpy()], ids=["list", "array"])
def test_index_that_is_no_tensor(index):
    model = SmallNet().eval()
    with pytest.raises(TypeError, match=rf"`index` to be a tensor, but got a {type(index).__name__}"):
        ATTACK(model, *examples(model, dtype=torch.float32), index=index)


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda z: z[:, :, None], ValueError, r"`model` to return logits of shape \(12, K\), .* but got \(12, 4, 1\)"),
        (lambda z: z[:5], ValueError, r"`model` to return logits of shape \(12, K\), .* but got \(5, 4\)"),
        (
            lambda z: z[:, :1],
            ValueError,
            r"`model` to return at least 2 logits for each image, but got 1\. .* torch\.cat",
        ),
        (lambda z: z[:, :2], ValueError, r"every label in `y` to lie in \[0, 1\], because the model has 2 classes"),
        (
            lambda z: z.argmax(1, keepdim=True),
            ValueError,
            r"`model` to return floating-point logits, but got torch\.int64",
        ),
        (lambda z: (z, z), ValueError, r"`model` to return a tensor of logits, but got a tuple: wrap it in a module"),
        (lambda z: z * NAN, ValueError, r"`model` to return logits, but got NaN on the clean images"),
        (
            lambda z: z.detach(),
            ValueError,
            r"`model` to be differentiable .* SPSA, Noise and Transfer need no gradient",
        ),
    ],
)
def test_models(spoil, error, message):
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    with pytest.raises(error, match=message):
        ATTACK(lambda x: spoil(model(x)), x, y)


def test_a_model_without_gradients_can_be_attacked_without_them():
    model = SmallNet().double().eval()
    x, y = examples(model)
    attack = SPSA(eps=0.1, lr=0.05, steps=4, samples=8)
    # Up to rounding: a function has no weights that could be laid out for the CPU.
    torch.testing.assert_close(attack(lambda x: model(x).detach(), x, y), attack(model, x, y))


def test_a_failing_model_comes_back_as_it_was():
    class Failing(SmallNet):
        calls = 0

        def forward(self, x):
            self.calls += 1
            if self.calls == 3:
                raise RuntimeError("out of memory")
            return super().forward(x)

    model = Failing().train()
    with pytest.raises(RuntimeError, match="out of memory"):
        BIM(eps=0.1, alpha=0.05, steps=5, stop="never")(model, torch.rand(3, 1, 6, 6), torch.tensor([0, 1, 2]))
    assert all(module.training for module in model.modules())
    assert [parameter.requires_grad for parameter in model.parameters()] == [True, False, True, True, True, True]


def test_warning_of_probabilities():
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    with pytest.warns(ProbabilityWarning, match="every row is non-negative and sums to 1") as caught:
        ATTACK(lambda x: model(x).softmax(1), x, y)
    assert caught[0].filename == __file__


@pytest.mark.parametrize(
    "wrap",
    [lambda net: net.forward, lambda net: lambda x: net(x), lambda net: eval("lambda x: net(x)", {"net": net})],
    ids=["method", "closure", "global"],
)
@pytest.mark.parametrize("call", [ATTACK, ATTACK.run, AutoAttack(eps=0.1, version="custom", attacks=(ATTACK,)).run])
def test_warning_of_a_function_around_a_model_in_training_mode(wrap, call):
    """It stays in training mode, and with dropout an attack fooled fewer."""
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    call(wrap(model), x, y)
    model.train()
    with pytest.warns(
        TrainModeWarning, match=r"function that calls a module in training mode, .* Call eval\(\)"
    ) as caught:
        call(wrap(model), x, y)
    assert {warning.filename for warning in caught if warning.category is TrainModeWarning} == {__file__}


@pytest.mark.filterwarnings("error")
def test_no_such_warning_of_what_is_not_called():
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    outer = nn.Sequential(model)
    assert outer.training, "but nothing in it acts as in training"
    ATTACK(lambda x: outer(x), x, y)
    ATTACK(eval("lambda x: outer.net(x)", {"outer": nn.ModuleDict({"net": model}), "net": SmallNet().train()}), x, y)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: BIM(eps=0.3, alpha=0.01, steps=10),
            r"10 steps with alpha=0\.01 move at most 0\.1 and cannot reach eps=0\.3 from the image itself\.",
        ),
        (lambda: PGD(eps=0.3, alpha=0.01, steps=10), r"cannot reach eps=0\.3"),
        (lambda: MIM(eps=0.3, alpha=0.01, steps=10), r"cannot reach eps=0\.3"),
        (lambda: SPSA(eps=0.3, lr=0.01, steps=10), r"10 steps with lr=0\.01 move at most 0\.1"),
    ],
)
def test_warning_of_steps_too_short(make, message):
    with pytest.warns(UnreachableWarning, match=message) as caught:
        make()
    assert caught[0].filename == __file__


@pytest.mark.filterwarnings("error")
def test_no_warning_without_a_reason():
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    PGD(eps=0.1, alpha=0.01, steps=10)(model, x, y)
    BIM(eps=8 / 255, alpha=0.8 / 255, steps=10)(model, x, y)


def test_types_that_differ_are_named():
    x, y = torch.rand(2, 3), torch.tensor([0, 1])
    half = nn.Linear(3, 2).half()
    with pytest.raises(ValueError, match=r"parameters of `model` to be torch.float32.*torch.float16.*model.float"):
        ATTACK(half, x, y)
    assert ATTACK(lambda x: half(x.half()).float(), x, y).dtype == torch.float32, "who casts is believed"
    with pytest.raises(TypeError, match="Expected `model` to be a module or a function, but got a str"):
        ATTACK("runs/x", x, y)


def test_a_model_that_asserts_the_size_of_images():
    def model(x):
        assert x.shape[-1] == 224, "Input height (6) doesn't match model (224)."
        return x.flatten(1)

    expected = r"images of shape \(1, 6, 6\), .* but an assertion in its first pass failed: Input height \(6\)"
    with pytest.raises(ValueError, match=expected):
        ATTACK(model, torch.rand(2, 1, 6, 6), torch.tensor([0, 1]))


def test_a_model_without_parameters_and_images_of_another_size():
    model = torch.jit.freeze(torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(36, 4)).eval()))
    with pytest.raises(ValueError, match=r"images of shape \(1, 7, 7\), .* first pass failed"):
        ATTACK(model, torch.rand(2, 1, 7, 7), torch.tensor([0, 1]))


@pytest.mark.filterwarnings("ignore:torch.ao.quantization:DeprecationWarning", "ignore:.*quantize:UserWarning")
def test_a_quantised_model_has_no_gradient():
    model = nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten(), nn.Linear(4, 4)).eval()
    quantised, x = torch.ao.quantization.quantize_dynamic(model, {nn.Linear}), torch.rand(2, 1, 6, 6)
    with pytest.raises(ValueError, match=r"`model` to be differentiable .* is quantised"):
        ATTACK(quantised, x, quantised(x).argmax(1))


def test_an_exported_program_has_no_eval_mode():
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    dynamic = {"x": {0: torch.export.Dim("n")}}
    exported = torch.export.export(model, (x,), dynamic_shapes=dynamic).module()
    with pytest.raises(ValueError, match=r"eval mode, but got the output of torch\.export, .* lambda x: model\(x\)"):
        ATTACK(exported, x, y)
    torch.testing.assert_close(ATTACK(lambda x: exported(x), x, y), ATTACK(model, x, y))


@pytest.mark.parametrize("attack", [ATTACK, AutoAttack(eps=0.1, version="custom", attacks=(ATTACK,))], ids=str)
def test_what_is_no_tensor_and_no_execution(attack):
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    with pytest.raises(TypeError, match="Expected `x` to be a tensor, but got a ndarray"):
        attack.run(model, x.numpy(), y)
    with pytest.raises(TypeError, match="Expected `y` to be a tensor, but got a list"):
        attack.run(model, x, y.tolist())
    with pytest.raises(TypeError, match=r"Expected `execution` to be an Execution, but got a str"):
        attack.run(model, x, y, execution="cpu")


def test_an_objective_that_is_no_name():
    with pytest.raises(ValueError, match=r"`objective` to be a name, .* but got a function"):
        PGD(eps=0.1, alpha=0.1, steps=2, objective=lambda logits, y: logits[:, 0])


def test_attacks_of_autoattack_that_are_no_tuple():
    several = AutoAttack(eps=0.1, version="custom", attacks=[ATTACK])
    assert several == AutoAttack(eps=0.1, version="custom", attacks=(ATTACK,))
    assert parse_attack(str(several)) == several
    assert isinstance(hash(several), int)
    with pytest.raises(ValueError, match=r"`attacks` to be a tuple of attacks, but got a FGSM"):
        AutoAttack(eps=0.1, version="custom", attacks=ATTACK)
