"""An audit that is killed goes on where it was."""

import importlib
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from documents import without_seconds
from torch import Tensor, nn

import pclc
from pclc.evaluation import state
from pclc.evaluation.audit import standing
from pclc.evaluation.audit.document import STEPS, to_document
from pclc.evaluation.state import State

EPS = 0.1


def points(n: int = 40) -> tuple[Tensor, Tensor]:
    x = torch.rand(n, 3, generator=torch.Generator().manual_seed(1))
    return x, x.argmax(1)


def network(bias: float = 0.0) -> nn.Module:
    model = nn.Linear(3, 3)
    model.weight.data, model.bias.data = 5 * torch.eye(3), torch.full((3,), bias)
    return model.eval()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The attacks of the audit that were computed, and not found on disk."""
    computed: list[str] = []
    plain = standing.run_quietly

    def counted(attack, *arguments):
        computed.append(str(attack))
        return plain(attack, *arguments)

    monkeypatch.setattr(standing, "run_quietly", counted)
    return computed


@pytest.fixture
def unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit without its checks, which keep nothing: here it is the attacks that matter."""
    module = importlib.import_module("pclc.evaluation.audit.run")
    monkeypatch.setattr(module, "CHECKS", {})
    monkeypatch.setattr(module, "_LATE", ())


def audit(out: Path | None, model: nn.Module | None = None, **settings) -> pclc.evaluation.audit.Audit:
    return pclc.audit(model or network(), *points(), eps=EPS, mode="quick", out=out, **settings)


def killed(out: Path, patch: pytest.MonkeyPatch, after: int = 3, wait: float = 0.0) -> None:
    """An audit that ends while its last attack is on its way to the disk."""
    kept = 0
    plain: Callable[..., None] = State.save_tensors

    def save(*arguments) -> None:
        nonlocal kept
        if kept == after:
            raise KeyboardInterrupt
        kept += 1
        plain(*arguments)

    fast = standing.is_fooled

    def slow(*arguments, **settings):
        time.sleep(wait)
        return fast(*arguments, **settings)

    with patch.context() as during:
        during.setattr(State, "save_tensors", save)
        during.setattr(standing, "is_fooled", slow)
        with pytest.raises(KeyboardInterrupt):
            audit(out)
    assert len(list(out.glob(f"{STEPS}/*.safetensors"))) == after
    assert not (out / "audit.json").exists()


def story(found: pclc.evaluation.audit.Audit) -> dict:
    return without_seconds(to_document(found))


def test_it_goes_on_where_it_was(tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit(None)
    in_whole = list(made)
    killed(tmp_path, monkeypatch)
    made.clear()
    again = audit(tmp_path)
    spared = Counter(in_whole) - Counter(made)  # the checks make attacks of their own, each time
    assert spared == Counter(step.attack for step in whole.steps[:3])
    assert story(again) == story(whole)
    assert torch.equal(again.witnesses.examples, whole.witnesses.examples)
    assert not (tmp_path / STEPS).exists()
    assert (tmp_path / "audit.json").exists()


@pytest.mark.usefixtures("unchecked")
def test_seconds_count_what_was_spent_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(tmp_path, monkeypatch, wait=0.2)
    started = time.perf_counter()
    again = audit(tmp_path)
    now = time.perf_counter() - started
    assert all(step.seconds > 0.2 for step in again.steps[:3])
    assert again.seconds > now


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("change", ["model", "seed", "eps"])
def test_what_has_changed_is_computed_anew(
    tmp_path: Path, made: list[str], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    killed(tmp_path, monkeypatch)
    changed = {"model": {"model": network(0.5)}, "seed": {"seed": 1}, "eps": {"eps": 0.2}}[change]
    fresh = []
    for out in (None, tmp_path):
        made.clear()
        settings = {"model": network(), "eps": EPS, "mode": "quick", "out": out, **changed}
        pclc.audit(settings.pop("model"), *points(), **settings)
        fresh.append(list(made))
    assert fresh[0] == fresh[1]
    assert len(list(tmp_path.glob(f"{STEPS}/*.safetensors"))) == 3, "what another audit kept stays"


def test_an_audit_that_ends_takes_no_folder_away_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two at once in one folder, as of two claims, or two processes of torchrun: they end at any time."""
    first, second = State(tmp_path, STEPS), State(tmp_path, STEPS)
    plain = state._hash

    def ends_meanwhile(*content):  # hashing takes a while
        first.clear()
        return plain(*content)

    monkeypatch.setattr(state, "_hash", ends_meanwhile)
    second.save_tensors({"attack": "one"}, {"rows": torch.arange(3)}, {"seconds": 1.0})
    first.clear()
    assert second.load_tensors({"attack": "one"}) is not None
    second.clear()
    first.clear()
    assert not (tmp_path / STEPS).exists()


def test_a_folder_that_cannot_be_written_is_told_before_the_attacks(tmp_path: Path, made: list[str]) -> None:
    (tmp_path / "file").touch()
    for model in (network(), lambda x: 5 * x):  # of the one outcomes are kept, of the other nothing is
        with pytest.raises(OSError, match="file"):
            audit(tmp_path / "file", model)
    assert not made


@pytest.mark.usefixtures("unchecked")
def test_what_was_kept_is_decided_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update may have changed the rule since: what counted as fooled then need not count now."""
    killed(tmp_path, monkeypatch)
    plain = standing.look_at

    def stricter(*arguments):
        found = plain(*arguments)
        return found._replace(wrong_single=found.wrong_single & (found.margins > 0.2))

    monkeypatch.setattr(standing, "look_at", stricter)
    assert story(audit(tmp_path)) == story(audit(None))


@pytest.mark.usefixtures("unchecked")
def test_a_plain_function_keeps_nothing(tmp_path: Path) -> None:
    pclc.audit(lambda x: 5 * x, *points(), eps=EPS, mode="quick", out=tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.json", "witnesses.safetensors"]
