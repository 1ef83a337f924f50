"""KilledError evaluations go on where they were; what has changed is not believed."""

import json
import multiprocessing
import signal
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from documents import without_seconds
from torch import Tensor, nn

import pclc
from pclc.attacks import EOT, FGSM, PGD, Attack, SquareStrongerWarning, Transfer, register_objective
from pclc.evaluation import Evaluation, Foreign, SetupWarning, load_evaluation
from pclc.evaluation.adversaries import plan
from pclc.evaluation.document import to_document

ATTACKS = [PGD(eps=0.1, alpha=0.03, steps=5), FGSM(eps=0.1)]


def outcomes(report: Evaluation) -> list[tuple[list[bool], list[float], list[float]]]:
    found = []
    for outcome in report.outcomes:
        assert outcome.linf is not None
        assert outcome.l2 is not None
        found.append((outcome.robust.tolist(), outcome.linf.tolist(), outcome.l2.tolist()))
    return found


class KilledError(RuntimeError):
    pass


KILL = SimpleNamespace()


class Counter(nn.Module):
    """The model, with the passes counted; raises after so many, as a kill would fall anywhere."""

    def __init__(self, model: nn.Module, limit: float = float("inf")) -> None:
        super().__init__()
        self.model, self.passes = model, 0
        KILL.after = limit  # not of the class, so no setting of the model

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        if self.passes > KILL.after:
            raise KilledError
        logits: Tensor = self.model(x)
        return logits


# Passes over a few images: at the logits, whether they are the same every time, whether other images change them, and
# whether float64 answers otherwise than float32.
LOOK = 1 + 20 + 5 + 2


@pytest.mark.parametrize("limit", [LOOK + 1, LOOK + 8, LOOK + 16, LOOK + 29])
def test_a_stopped_evaluation_goes_on(case, tmp_path: Path, limit: int) -> None:
    whole = Counter(case.model)
    expected = pclc.evaluate(whole.eval(), case.x, case.y, ATTACKS, eps=[0.05, 0.1], chunk=40)
    model = Counter(case.model, limit).eval()
    with pytest.raises(KilledError):
        pclc.evaluate(model, case.x, case.y, ATTACKS, eps=[0.05, 0.1], chunk=40, out=tmp_path)
    assert not (tmp_path / "evaluation.json").exists()
    rest = Counter(case.model).eval()
    found = pclc.evaluate(rest, case.x, case.y, ATTACKS, eps=[0.05, 0.1], chunk=40, out=tmp_path)
    assert outcomes(found) == outcomes(expected)
    assert [o.forwards for o in found.outcomes] == [o.forwards for o in expected.outcomes]
    assert [o.carried for o in found.outcomes] == [o.carried for o in expected.outcomes]
    if limit > LOOK + 9:
        assert rest.passes < whole.passes, "what was found before is not computed again"
    again = Counter(case.model).eval()
    pclc.evaluate(again, case.x, case.y, ATTACKS, eps=[0.05, 0.1], chunk=40, out=tmp_path)
    assert again.passes == LOOK, "a finished evaluation costs the look at the model"


def test_a_killed_process_goes_on(case, tmp_path: Path) -> None:
    """The same bits, wherever the kill falls: the process is ended from outside, without a chance to tidy up."""
    attacks = [PGD(eps=0.1, alpha=0.01, steps=40, stop="never"), FGSM(eps=0.1)]

    def run(out: Path) -> Evaluation:
        return pclc.evaluate(case.model, case.x, case.y, attacks, out=out, chunk=10, keep_examples=True)

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    run(whole)
    process = multiprocessing.get_context("fork").Process(target=run, args=(parts,))
    process.start()
    until = time.monotonic() + 60
    while len(list(parts.glob("evaluation/*.safetensors"))) < 8 and time.monotonic() < until:
        time.sleep(0.002)
    process.kill()
    process.join()
    assert process.exitcode == -signal.SIGKILL, "killed before it was finished"
    assert 8 <= len(list(parts.glob("evaluation/*.safetensors"))) < 3 * 12
    assert not (parts / "evaluation.json").exists()
    run(parts)
    a, b = (without_seconds(to_document(load_evaluation(folder))) for folder in (whole, parts))
    assert a == b
    for name in ("adversarial-0.safetensors", "adversarial-1.safetensors"):
        assert (whole / name).read_bytes() == (parts / name).read_bytes()


def test_more_attacks_cost_only_themselves(case, tmp_path: Path) -> None:
    pclc.evaluate(case.model, case.x, case.y, ATTACKS[:1], out=tmp_path)
    model = Counter(case.model)
    first = pclc.evaluate(model.eval(), case.x, case.y, ATTACKS[1:], out=tmp_path / "other")
    passes, model.passes = model.passes, 0
    both = pclc.evaluate(model, case.x, case.y, ATTACKS, out=tmp_path / "other")
    assert outcomes(both)[1:] == outcomes(first)
    assert model.passes > LOOK
    model.passes = 0
    pclc.evaluate(model, case.x, case.y, ATTACKS[1:], out=tmp_path / "other")
    assert model.passes == LOOK < passes


@pytest.mark.parametrize("change", ["model", "data", "labels", "seed", "eight_bit", "activation"])
def test_what_has_changed_is_computed_anew(case, tmp_path: Path, change: str) -> None:
    layers = [nn.Flatten(), nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10)]
    warnings.simplefilter("ignore", SetupWarning)  # of the clean accuracy; pytest puts the filters back
    arguments = {"x": case.x, "y": case.y, "attacks": ATTACKS[:1], "out": tmp_path}
    pclc.evaluate(nn.Sequential(*layers).eval(), **arguments)
    if change == "model":
        layers[1].weight.data[0, 0] += 0.5
    elif change == "activation":
        layers[2] = nn.Tanh()
    elif change == "data":
        arguments["x"] = case.x.roll(1, 0)
    elif change == "labels":
        arguments["y"] = case.y.roll(1)
    else:
        arguments[change] = 1 if change == "seed" else True
    model = nn.Sequential(*layers).eval()
    word = {"labels": "data", "activation": "architecture"}.get(change, change)
    with pytest.warns(SetupWarning, match=rf"holds results of another evaluation \(.*{word}"):
        changed = pclc.evaluate(model, **arguments)
    fresh = pclc.evaluate(model, **{**arguments, "out": None})
    assert outcomes(changed) == outcomes(fresh)


def test_a_changed_substitute_is_noticed(case, tmp_path: Path) -> None:
    twin = pclc.create_model("lenet8")
    before = pclc.evaluate(case.model, case.x, case.y, [Transfer(FGSM(eps=0.2), twin)], out=tmp_path)
    twin.load_state_dict(case.model.state_dict())
    after = pclc.evaluate(case.model, case.x, case.y, [Transfer(FGSM(eps=0.2), twin)], out=tmp_path)
    assert before.outcomes[0].attack == after.outcomes[0].attack
    assert after.outcomes[0].accuracy.correct < before.outcomes[0].accuracy.correct


def test_a_broken_file_is_computed_anew(case, tmp_path: Path) -> None:
    before = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path)
    for file in tmp_path.glob("evaluation/*.safetensors"):
        file.write_bytes(file.read_bytes()[:50])
    with pytest.warns(UserWarning, match=r"cannot be read and is computed again"):
        again = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path)
    assert outcomes(again) == outcomes(before)


@pytest.mark.parametrize("name", ["fooled", "linf", "__metadata__"])
def test_a_changed_byte_is_noticed(case, tmp_path: Path, name: str) -> None:
    """Of flags, of sizes, of numbers: safetensors itself reads all of them."""
    before = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path)
    for file in tmp_path.glob("evaluation/*.safetensors"):
        content = bytearray(file.read_bytes())
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start])
        if name == "__metadata__":
            content = bytearray(bytes(content).replace(b'outside\\": 0', b'outside\\": 1'))
        else:
            content[start + header[name]["data_offsets"][0]] ^= 1
        assert content != file.read_bytes()
        file.write_bytes(content)
    with pytest.warns(UserWarning, match=r"computed again: its contents have changed since they were written"):
        again = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path)
    assert without_seconds(to_document(again)) == without_seconds(to_document(before))


SIGN = {"of-others": 1.0}


@register_objective("of-others")
def of_others(logits: Tensor, y: Tensor) -> Tensor:
    return SIGN["of-others"] * logits.gather(1, y[:, None]).squeeze(1)


class OfOthers(FGSM):
    """With the text of its parent."""

    def _perturb(self, victim, x, y, seed, index):  # type: ignore[no-untyped-def]
        return super()._perturb(victim, x, y, seed, index) if SIGN["of-others"] < 0 else x


@pytest.mark.parametrize(
    "attack",
    [
        OfOthers(eps=0.2),
        PGD(eps=0.2, alpha=0.1, steps=4, objective="of-others*2"),
        EOT(PGD(eps=0.2, alpha=0.1, steps=4, objective="of-others"), draws=1),
    ],
)
def test_code_of_others_may_change_under_its_name(
    case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Attack
) -> None:
    found = []
    for sign in (1.0, -1.0):
        monkeypatch.setitem(SIGN, "of-others", sign)
        with pytest.warns(SetupWarning, match="has code that may change under the same name, so it is computed again"):
            report = pclc.evaluate(case.model, case.x, case.y, [attack], out=tmp_path)
        found.append(report.robust_accuracy.correct)
    assert found[1] < found[0]


@pytest.mark.parametrize("attack", ['pgd(eps=0.1, alpha=0.05, steps=2, objective="ce*0.1")', "autoattack(eps=0.1)"])
def test_our_own_code_is_resumed(attack: str) -> None:
    assert plan([attack])[0].identity is not None


def test_examples_asked_for_later_are_computed(case, tmp_path: Path) -> None:
    before = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path)
    after = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path, keep_examples=True)
    assert outcomes(after) == outcomes(before)
    kept = after.outcomes[0].x_adv
    assert kept is not None
    third = pclc.evaluate(case.model, case.x, case.y, ATTACKS, out=tmp_path, keep_examples=True)
    assert torch.equal(third.outcomes[0].x_adv, kept)


def test_a_name_stands_for_a_callable(case, tmp_path: Path) -> None:
    calls = []

    def attack(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        calls.append(len(x))
        return x

    for _ in range(2):
        pclc.evaluate(case.model, case.x, case.y, [Foreign(attack, "nothing")], out=tmp_path)
    assert len(calls) == 1
    for _ in range(2):
        with pytest.warns(SetupWarning, match=r"attack has no name for its settings"):
            pclc.evaluate(case.model, case.x, case.y, [attack], out=tmp_path)
    assert len(calls) == 3


def test_what_an_attack_warned_of_is_told_again(case, tmp_path: Path) -> None:
    """Also where nothing is computed again: a figure that was doubtful once is doubtful wherever it stands."""

    def doubtful(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        warnings.warn("something of the attack", SquareStrongerWarning, stacklevel=2)
        warnings.warn("something of the model", FutureWarning, stacklevel=2)
        return x

    told = []
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            pclc.evaluate(case.model, case.x, case.y, [Foreign(doubtful, "doubtful")], out=tmp_path)
        told.append({(entry.category, str(entry.message)) for entry in caught if "something" in str(entry.message)})
    assert told[0] == {(SquareStrongerWarning, "something of the attack"), (FutureWarning, "something of the model")}
    assert told[1] == {(SquareStrongerWarning, "something of the attack")}, "the model did not run"


def test_a_plain_function_is_not_resumed(case, tmp_path: Path) -> None:
    with pytest.warns(SetupWarning, match=r"plain function and has no hash"):
        pclc.evaluate(lambda x: case.model(x), case.x, case.y, ATTACKS, out=tmp_path)
    assert not list(tmp_path.glob("evaluation/*.safetensors"))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_a_frozen_model_has_no_hash_and_is_not_resumed(case, tmp_path: Path) -> None:
    script = torch.jit.trace(case.model, case.x[:2], check_trace=False)
    frozen = torch.jit.freeze(script).eval()  # its weights are constants of its code
    with pytest.warns(SetupWarning, match=r"frozen and has no hash"):
        report = pclc.evaluate(frozen, case.x, case.y, ATTACKS, out=tmp_path)
    assert report.conditions.model_hash is None
    assert not list(tmp_path.glob("evaluation/*.safetensors"))
