"""One audit of a model that says the same every time: looks, the ladder of attacks, checks, judgement."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from pclc.attacks import Attack
from pclc.evaluation.audit.checks.set_up import ALONE
from pclc.evaluation.audit.checks.vanishing_gradients import USABLE
from pclc.evaluation.audit.finding import CHECKS, Finding, run_check
from pclc.evaluation.audit.ladder import BLACK_BOX, COSTLY, MODES, Mode, Threat, claim_attack, ladder
from pclc.evaluation.audit.result import Gradient
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.shares import Share
from pclc.evaluation.audit.standing import Standing, Step
from pclc.evaluation.audit.subject import Subject
from pclc.evaluation.audit.verdict import Judgement, Overstatement, is_refuted, judge, looks, overstatement
from pclc.evaluation.progress import bar
from pclc.evaluation.result import Accuracy
from pclc.evaluation.sharing import gather
from pclc.evaluation.state import State
from pclc.evaluation.traps import look_at_accuracy
from pclc.evaluation.witnesses import DataSource, Witnesses, make_witnesses
from pclc.execution import Execution
from pclc.training.processes import Processes

_CHECKED: dict[Mode, int] = {"quick": 64, "standard": 128, "full": 256}  # examples for the checks
# Costly attacks see a random sample of what stands, and the rest only where more than this share of the sample falls.
_SAMPLE, _WORTH_IT = 500, 0.01
_LATE = ("black-box attacks find nothing more", "the audit has converged", "EOT has converged")
_ESCALATE = ("doubt", "weak attack", "gradients")  # kinds of checks that ask for more than was planned


@dataclass(eq=False)
class Run:
    """The state of one audit of a model that says the same every time."""

    subject: Subject
    threat: Threat
    x: Tensor
    y: Tensor
    index: Tensor
    claim: float | None
    mode: Mode
    seed: int
    execution: Execution
    state: State
    about: dict[str, Any] | None
    peers: Processes

    def __post_init__(self) -> None:
        self.findings: dict[str, Finding] = {}
        self.escalated = False
        self.blind = (0, 0)
        self.scene: Scene | None = None
        # Looks are at random examples, wherever the data set has its classes.
        generator = torch.Generator().manual_seed(self.seed % 2**63)
        self.order = torch.randperm(len(self.x), generator=generator, device="cpu").to(self.x.device)
        self.planned = MODES[: MODES.index(self.mode) + 1]

    def go(self, progress: bool) -> Judgement:
        """Attack and check until there is a verdict."""
        attacks = sum(len(ladder(stage, self.threat)) for stage in self.planned)
        with bar((1 + attacks) * len(self.x) + len(CHECKS) * self._checked, progress) as self.advance:
            self._begin()
            near = look_at_accuracy(Accuracy.of(self.standing.clean), self.subject.classes)
            start = 0
            for look in looks(len(self.x), may_stop=self.mode != "full"):
                self.rows, self.alpha = self.order[: look.examples], look.alpha
                new, start = self.order[start : look.examples], look.examples
                self._claim(new)
                if not near and not self.findings:
                    self._early()
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
        sentence = "The model does not look at each image by itself ({}), so no figure holds for single images."
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
        if self._suspicious and self.mode != "full":
            self.escalated = True
            self._stage(MODES[MODES.index(self.mode) + 1], self.rows)
            self._late()

    @property
    def _suspicious(self) -> bool:
        return any(finding.fired and finding.kind in _ESCALATE for finding in self.findings.values())

    def _early(self) -> None:
        self._check([name for name in CHECKS if name not in _LATE])

    def _late(self) -> None:
        assert self.scene is not None
        self._tell(self.scene)
        self._check(_LATE)

    def _tell(self, scene: Scene) -> None:
        """What the attacks did, for the checks that come after them."""
        left = self.rows[self.worst][: self._checked]
        scene.survivors, scene.gained_blind = (self.x[left], self.y[left]), self.blind

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
