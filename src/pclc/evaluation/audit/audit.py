"""Is a claim of robustness true? Attacks from cheap to thorough, checks of the attacks, and a verdict."""

import json
import platform
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor

from pclc.attacks import Attack
from pclc.attacks.attack import number_text
from pclc.attacks.inputs import check_examples, check_randomness
from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball, check_choice
from pclc.evaluation.audit import checks as _registered  # noqa: F401 (importing it registers them)
from pclc.evaluation.audit.checks.alone import ALONE
from pclc.evaluation.audit.checks.vanishing_gradients import USABLE
from pclc.evaluation.audit.document import FILE, STEPS, WITNESSES, load_document, to_document
from pclc.evaluation.audit.finding import CHECKS, Finding, run_check
from pclc.evaluation.audit.ladder import COSTLY, MODES, Mode, Threat, claim_attack, ladder
from pclc.evaluation.audit.randomness import RandomOutcome, attack_random
from pclc.evaluation.audit.result import Audit, Conditions, Gradient
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.shares import Share
from pclc.evaluation.audit.standing import BLACK_BOX, Standing, Step
from pclc.evaluation.audit.subject import Subject, look_at_model
from pclc.evaluation.audit.verdict import ALPHA, Judgement, Overstatement, is_refuted, judge, looks, overstatement
from pclc.evaluation.device import device_name, device_of
from pclc.evaluation.progress import bar
from pclc.evaluation.result import Accuracy
from pclc.evaluation.sharing import gather
from pclc.evaluation.state import State
from pclc.evaluation.traps import SetupWarning, check_pixels, look_at_accuracy
from pclc.evaluation.witnesses import DataSource, Witnesses, make_witnesses
from pclc.execution import Execution
from pclc.files import write_atomically
from pclc.hashes import architecture_hash, model_hash, tensor_hash
from pclc.training.config import LossName
from pclc.training.processes import Processes, processes
from pclc.version import __version__

_LOOKED_AT = 64  # examples that the model is looked at with
_CHECKED: dict[Mode, int] = {"quick": 64, "standard": 128, "full": 256}  # examples for the checks
# Costly attacks see a random sample of what stands, and the rest only where more than this share of the sample falls.
_SAMPLE, _WORTH_IT = 500, 0.01
_LATE = ("black-box attacks find nothing more", "the audit has converged", "EOT has converged")
_ESCALATE = ("doubt", "weak attack", "gradients")  # kinds of checks that ask for more than was planned


@torch.inference_mode(False)  # inside which there are no gradients
def audit(
    model: Model,
    x: Tensor,
    y: Tensor,
    norm: Norm = "Linf",
    eps: float = 8 / 255,
    claim: float | None = None,
    mode: Mode = "standard",
    *,
    seed: int = 0,
    index: Tensor | None = None,
    loss: str | None = None,
    twin: Model | None = None,
    data: DataSource | None = None,
    out: Path | str | None = None,
    execution: Execution | None = None,
    progress: bool = False,
    model_name: str | None = None,
    data_name: str | None = None,
) -> Audit:
    """Judge a claim of robustness: "refuted", "not refuted", or "cannot judge".

    Only witnesses refute: adversarial examples inside the ball and the box that the model gets wrong in float32 and in
    float64. Checks tell whether the attacks can be trusted; where they cannot, more attacks are made, and if that does
    not help, the verdict is "cannot judge". The audit stops where the claim is refuted, except in mode "full".

    With `out`, what each attack broke is kept until the audit is done, and the same call goes on there after a kill.
    Under `torchrun` the examples are shared among the processes, and each returns all of the result.

    Args:
        model: images (N, ...) to logits (N, K). It runs in eval mode and comes back as it was.
        x: (N, ...) float in [0, 1]; a random sample of what the claim is about, such as a test set or a part of it.
        y: (N,) int64, the true classes.
        norm: "Linf" or "L2".
        eps: radius of the ball.
        claim: the accuracy that is claimed at this eps, in (0, 1]; None: what plain PGD-40 on cross-entropy leaves.
        mode: "quick", "standard" or "full" (standard AutoAttack on every example, and more).
        seed: of all random numbers.
        index: (N,) places of the images in their data set; None: 0 ... N - 1.
        loss: name of the loss that the model was trained with, as of `TrainConfig`; its inverse is attacked first.
        twin: a model of the same task trained with cross-entropy, for transfers.
        data: where the images can be found again; None puts the originals beside the witnesses.
        out: folder for `audit.json` and `witnesses.safetensors`.
        execution: precision of crafting, batch size, graphs; the device is the model's.
        progress: show a bar on the error stream.
        model_name, data_name: what they are called in the result.

    Example:
        >>> model = nn.Linear(2, 3, bias=False)
        >>> model.weight.data = 1e4 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [-9.0, -9.0]])  # saturated
        >>> x = torch.rand(60, 2)
        >>> found = audit(model.eval(), x, x.argmax(1), eps=0.4, mode="quick")
        >>> found.verdict, found.claimed.value > 0.5, found.robust_accuracy.value < 0.3
        ('refuted', True, True)
    """
    check_pixels(x)
    check_examples(x, y)
    check_ball(eps, norm)
    check_choice("mode", mode, MODES)
    if eps == 0:
        raise ValueError("Expected `eps` to be above 0, but got 0: without a perturbation there is nothing to audit.")
    if not len(x):
        raise ValueError("Expected at least one example, but got none.")
    if claim is not None and not (isinstance(claim, float | int) and 0 < claim <= 1):
        raise ValueError(f"Expected `claim` to be an accuracy in (0, 1], such as 0.53, but got {claim!r}.")
    if loss is not None:
        check_choice("loss", loss, get_args(LossName))  # a name that is misspelt would cost the adaptive attack
    index = check_randomness(seed, index, x)
    if len(set(index.tolist())) < len(index):
        raise ValueError("Expected every number in `index` once, but some occur again.")
    device = device_of(model, x)
    # Copies of what was made in inference mode, which stays without gradients.
    x, y, index = ((t.clone() if t.is_inference() else t).to(device) for t in (x, y, index))
    settings = (execution or Execution()).for_attacks(device)
    started = time.perf_counter()
    versions = {"pclc": __version__, "torch": torch.__version__, "python": platform.python_version()}
    named, data_hash = model_hash(model), tensor_hash(x, y, index)
    twin_hash = None if twin is None else model_hash(twin)
    made = architecture_hash(model), architecture_hash(twin)  # before the first pass: a model may count them
    with processes(device) as peers, torch.random.fork_rng([device] if device.type == "cuda" else []):
        torch.manual_seed(seed % 2**63)  # of models that draw
        some = slice(_LOOKED_AT)
        subject = look_at_model(model, x[some], y[some], settings)
        if y.max() >= subject.classes:  # among all of them, not only those looked at
            raise ValueError(
                f"Expected every label in `y` to lie in [0, {subject.classes - 1}], because the model has "
                f"{subject.classes} classes, but got {y.max().item()}."
            )
        # One process may round otherwise than another; all go by the first.
        random, gap, differentiable = gather((subject.random, subject.gap, subject.differentiable), peers.count)[0]
        if random and peers.count > 1:
            raise ValueError(f"Expected one process for a model that is random, but got {peers.count} under torchrun.")
        about = None
        if named is not None and (twin is None or twin_hash is not None):
            about = {
                "model": named,
                "architecture": made[0],
                "twin": [twin_hash, made[1]],
                "data": data_hash,
                "seed": seed,
                "device": device.type,
                "precision": settings.resolved_precision,
                "versions": versions,
            }
        state = State(Path(out) if out and about else None, STEPS)
        threat = Threat(norm, eps, subject.classes, gap, differentiable, loss, twin)
        run = _RandomRun if random else _Run
        work = run(
            subject, threat, x, y, index, None if claim is None else float(claim), mode, seed, settings,
            state=state, about=about, peers=peers,
        )  # fmt: skip
        found = work.go(progress and peers.leads)
        gradients, witnesses = work.gradients(), replace(work.witnesses(data), model_hash=named)
    conditions = Conditions(
        norm,
        eps,
        mode,
        work.escalated,
        len(x),
        seed,
        random,
        model_name or str(getattr(model, "__name__", type(model).__name__)),
        named,
        data_name or "the given images",
        data_hash,
        loss,
        twin_hash,
        device_name(device),
        settings.resolved_precision,
        peers.count,
        versions,
    )
    result = Audit(
        *found,
        claimed=work.claimed_share,
        clean=work.share(work.clean),
        robust_accuracy=work.share(work.worst),
        overstatement=work.overstatement,
        gradients=gradients,
        checks=tuple(work.findings.values()),
        witnesses=witnesses,
        steps=_merged(work.steps),
        conditions=conditions,
        seconds=time.perf_counter() - started + work.spent_before,
    )
    if out is not None and peers.leads:
        save_audit(result, out)
    if out is not None:
        state.clear()
    return result


def save_audit(result: Audit, out: Path | str) -> None:
    """Write `audit.json` and `witnesses.safetensors` into the folder `out`."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    _tell_what_is_replaced(result, folder)
    result.witnesses.save(folder / WITNESSES)
    write_atomically(folder / FILE, (json.dumps(to_document(result), indent=1) + "\n").encode())


def _tell_what_is_replaced(result: Audit, folder: Path) -> None:
    try:
        before = load_document(folder)
    except (OSError, ValueError):
        return  # none, or none that can be read
    now = to_document(result)
    held = [_subject(each) for each in (before, now)]
    if held[0] != held[1]:
        _, norm, eps, claim = held[0]
        stated = "" if claim is None else f" of the claim {claim:g}"
        warnings.warn(
            f"The audit{stated} at {norm} eps {number_text(eps)} in {folder} was replaced: use a folder for each.",
            SetupWarning,
            stacklevel=3,
        )
    elif before["verdict"] == "refuted" != now["verdict"]:
        warnings.warn(
            f"The audit in {folder}, which refuted this claim on {before['clean']['n']} examples, was replaced by one "
            f"on {now['clean']['n']} that does not; its witnesses are gone.",
            SetupWarning,
            stacklevel=3,
        )


def _subject(document: dict[str, Any]) -> tuple[Any, ...]:
    about = document["conditions"]
    return about["model_hash"], about["norm"], about["eps"], document["stated_claim"]


class _Run:
    """The state of one audit of a model that says the same every time."""

    def __init__(
        self,
        subject: Subject,
        threat: Threat,
        x: Tensor,
        y: Tensor,
        index: Tensor,
        claim: float | None,
        mode: Mode,
        seed: int,
        execution: Execution,
        *,
        state: State,
        about: dict[str, Any] | None,
        peers: Processes,
    ) -> None:
        self.state, self.about, self.peers = state, about, peers
        self.subject, self.threat, self.claim, self.mode, self.seed = subject, threat, claim, mode, seed
        self.x, self.y, self.index, self.execution = x, y, index, execution
        self.findings: dict[str, Finding] = {}
        self.escalated = False
        self.blind = (0, 0)
        self.scene: Scene | None = None
        # Looks are at random examples, wherever the data set has its classes.
        generator = torch.Generator().manual_seed(seed % 2**63)
        self.order = torch.randperm(len(x), generator=generator, device="cpu").to(x.device)
        self.planned = MODES[: MODES.index(mode) + 1]

    def go(self, progress: bool) -> Judgement:
        """Attack and check until there is a verdict."""
        attacks = sum(len(ladder(stage, self.threat)) for stage in self.planned)
        with bar((1 + attacks) * len(self.x) + len(CHECKS) * self._checked, progress) as self.advance:
            self._begin()
            near = self._near_chance()
            start = 0
            for look in looks(len(self.x), may_stop=self.mode != "full"):
                self.rows, self.alpha = self.order[: look.examples], look.alpha
                new, start = self.order[start : look.examples], look.examples
                self._claim(new)
                if not near and not self.findings:
                    self._check([name for name in CHECKS if name not in _LATE])
                for stage in self.planned:
                    self._stage(stage, new)
                    if self._refuted and self.mode != "full":
                        break
                if self._refuted:
                    break
            if not near:
                self._finish()
        self.overstatement = self._overstatement()
        return self._judge(near)

    def _judge(self, near: str | None) -> Judgement:
        fired = [finding for finding in self.findings.values() if finding.fired]
        doubts = [finding.name for finding in fired if finding.kind == "doubt"]
        mixed = [finding.measured for finding in fired if finding.name == ALONE]
        sentence = "The model does not look at each image by itself ({}): no figure is of single images."
        spoilt = sentence.format(*mixed) if mixed else near
        return judge(self._claimed, self.worst, self.overstatement, spoilt=spoilt, doubts=doubts)

    def _begin(self) -> None:
        about = (self.x, self.y, self.index, self.threat.norm, self.threat.eps, self.seed, self.execution)
        self.standing = Standing(self.subject.model, *about, self.state, self.about, self.peers)
        self.rows = self.order
        self.left_by_claim = self.standing.clean.clone()

    @property
    def clean(self) -> Tensor:
        """(n,) flags of the examples looked at."""
        return self.standing.clean[self.rows]

    @property
    def _right(self) -> Tensor:
        return self.standing.clean[self.order]

    @property
    def worst(self) -> Tensor:
        """(n,) flags: still standing."""
        return ~self.standing.broken[self.rows]

    @property
    def steps(self) -> Sequence[Step]:
        """The attacks that were made."""
        return self.standing.steps

    @property
    def spent_before(self) -> float:
        """Seconds of an earlier audit that was killed, in what was kept of it."""
        return self.standing.spent_before

    @property
    def _claimed(self) -> Tensor | float:
        return self.left_by_claim[self.rows] if self.claim is None else self.claim

    @property
    def claimed_share(self) -> Share | float:
        """The claim, with its interval where it was measured here."""
        return self._claimed if isinstance(self._claimed, float) else self.share(self._claimed)

    def share(self, flags: Tensor) -> Share:
        """With an interval that takes account of all looks."""
        return Share.of(flags, 1 - self.alpha)

    @property
    def _checked(self) -> int:
        return min(len(self.x), _CHECKED[self.mode])

    def _overstatement(self) -> Overstatement:
        return overstatement(self._claimed, self.worst, self.alpha)

    @property
    def _refuted(self) -> bool:
        return is_refuted(self._overstatement(), self.claim is not None)

    def _near_chance(self) -> str | None:
        found = look_at_accuracy(Accuracy.of(self.standing.clean), self.subject.classes)
        return found[0] if found else None

    def _claim(self, rows: Tensor) -> None:
        """The claim's attack on all examples that are right, its last iterates."""
        attack = claim_attack(self.threat.norm, self.threat.eps)
        todo = rows[~self.standing.broken[rows]]
        self.standing.strike(attack, self.subject.model, todo)
        self.left_by_claim[todo] = ~self.standing.broken[todo]
        self.advance(str(attack), len(rows))

    def _stage(self, stage: Mode, rows: Tensor) -> None:
        """The attacks of one mode on rows that still stand, the ones without gradients last."""
        attacks = ladder(stage, self.threat)
        seeing = [attack for attack in attacks if not isinstance(attack, BLACK_BOX)]
        for attack in seeing:
            self._strike(attack, rows)
        # All of the blind attacks see these, also the ones that see a sample: rows are in random order.
        sample = rows[~self.standing.broken[rows]][:_SAMPLE]
        for attack in attacks:
            if attack not in seeing:
                self._strike(attack, rows)
        if seeing:
            self.blind = (int(self.standing.broken[sample].sum()), len(sample))

    def _strike(self, attack: Attack, rows: Tensor) -> None:
        """An attack on what stands of `rows`; a costly one on a random sample first."""
        rows = rows[~self.standing.broken[rows]]
        first = rows[:_SAMPLE] if isinstance(attack, COSTLY) else rows
        step = self.standing.strike(attack, self.subject.craft, first)
        if len(first) < len(rows):
            if step.broke > _WORTH_IT * len(first):
                self.standing.strike(attack, self.subject.craft, rows[len(first) :])
            else:
                self.standing.steps[-1] = replace(step, spared=len(rows) - len(first))
        self.advance(str(attack), len(rows))

    def _check(self, names: Sequence[str]) -> None:
        if self.scene is None:
            self.scene = self._scene()
        for name in names:
            finding = run_check(CHECKS[name], self.scene) if self.peers.leads else None
            told = gather(finding, self.peers.count)[0]
            assert told is not None
            self.findings[name] = told
            self.advance(name, self._checked)

    def _scene(self) -> Scene:
        # Of all of them: among a thousand classes the first look may hold none that is right.
        right = self.order[self._right][: self._checked]
        threat = self.threat
        about = (self.x[right], self.y[right], threat.norm, threat.eps, self.seed, self.execution, threat.twin)
        return Scene(self.subject, *about)

    def _finish(self) -> None:
        """The checks that come after the attacks; where something speaks against those, the next mode too."""
        if self._refuted:
            self._check(_LATE)
            return
        self._late()
        suspicious = any(finding.fired and finding.kind in _ESCALATE for finding in self.findings.values())
        if suspicious and self.mode != "full":
            self.escalated = True
            self._stage(MODES[MODES.index(self.mode) + 1], self.rows)
            self._late()

    def _late(self) -> None:
        assert self.scene is not None
        left = self.rows[self.worst][: self._checked]
        self.scene.survivors, self.scene.gained_blind = (self.x[left], self.y[left]), self.blind
        self._check(_LATE)

    def gradients(self) -> tuple[Gradient, ...]:
        """Of the objectives along the path of the claim's attack."""
        if self.scene is None:
            return ()
        vanished = gather(self.scene.trace.vanished if self.peers.leads else {}, self.peers.count)[0]
        return tuple(Gradient(name, share, share <= USABLE) for name, share in vanished.items())

    def witnesses(self, data: DataSource | None) -> Witnesses:
        """What does not stand, checked once more; where the clean image is wrong, it is the witness itself."""
        broken = self._fallen()
        return make_witnesses(
            self.subject.model,
            self.x[broken],
            self.y[broken],
            self.x_adv[broken],
            norm=self.threat.norm,
            eps=self.threat.eps,
            index=self.index[broken],
            data=data,
            execution=self.execution,
        )

    @property
    def x_adv(self) -> Tensor:
        """(N, ...) the candidates of all examples."""
        return self.standing.x_adv

    def _fallen(self) -> Tensor:
        return self.rows[~self.worst]


class _RandomRun(_Run):
    """The state of one audit of a random model, whose examples are right now and then."""

    def go(self, progress: bool) -> Judgement:
        """Attack through means over draws, and score by fresh ones."""
        self.rows, self.alpha = self.order, ALPHA
        with bar(6 * len(self.x) + len(CHECKS) * self._checked, progress) as self.advance:
            self.outcome = self._attack(self.mode)
            near = look_at_accuracy(self.share(self.clean), self.subject.classes)
            if not near:
                self._check([name for name in CHECKS if name not in _LATE])
                self._late()
                suspicious = any(finding.fired and finding.kind in _ESCALATE for finding in self.findings.values())
                if suspicious and not self._refuted and self.mode != "full":
                    self.escalated = True
                    self.outcome = self._attack(MODES[MODES.index(self.mode) + 1])
                    self._late()
        self.overstatement = self._overstatement()
        return self._judge(near[0] if near else None)

    def _attack(self, mode: Mode) -> RandomOutcome:
        x, y, index = self.x[self.rows], self.y[self.rows], self.index[self.rows]
        about = (self.threat, mode, self.seed, self.execution, self.advance)
        return attack_random(self.subject.model, self.subject.craft, x, y, index, *about)

    @property
    def clean(self) -> Tensor:
        """(n,) scores without an attack."""
        return self.outcome.clean

    @property
    def worst(self) -> Tensor:
        """(n,) scores of the final candidates."""
        return self.outcome.worst

    @property
    def steps(self) -> Sequence[Step]:
        """The attacks that were made."""
        return self.outcome.steps

    @property
    def spent_before(self) -> float:
        """Of a random model nothing is kept."""
        return 0.0

    @property
    def _claimed(self) -> Tensor | float:
        return self.outcome.claimed if self.claim is None else self.claim

    def _late(self) -> None:
        assert self.scene is not None
        self.scene.gained_draws = self.outcome.gain
        self._check(_LATE)

    @property
    def _right(self) -> Tensor:
        # Half as often as the surest one: of a model that guesses now and then none may be right more often than not.
        return self.clean > self.clean.amax() / 2

    @property
    def x_adv(self) -> Tensor:
        """(N, ...) the candidates of all examples."""
        everything = self.x.clone()
        everything[self.rows] = self.outcome.x_adv
        return everything

    def _fallen(self) -> Tensor:
        return self.rows[self.worst < 0.5]


def _merged(steps: Sequence[Step]) -> tuple[Step, ...]:
    """One line for each attack, with what it did at all looks."""
    merged: dict[str, Step] = {}
    for step in steps:
        old = merged.get(step.attack, Step(step.attack, 0, 0, 0.0, step.black_box))
        sums = (old.tried + step.tried, old.broke + step.broke, old.seconds + step.seconds)
        merged[step.attack] = Step(step.attack, *sums, step.black_box, old.spared + step.spared)
    return tuple(merged.values())
