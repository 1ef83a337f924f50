"""One audit of a random model, whose examples are right now and then."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torch import Tensor

from pclc.attacks import APGD, EOT, Attack, Noise, ProbabilityMargin, Square
from pclc.attacks.frozen import frozen
from pclc.attacks.suspicions import shares_draws
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.evaluation.audit.finding import CHECKS
from pclc.evaluation.audit.ladder import MODES, Mode, claim_attack, transfers
from pclc.evaluation.audit.randomness import GAIN, score
from pclc.evaluation.audit.run import Run
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import Step, run_quietly
from pclc.evaluation.audit.verdict import ALPHA, Judgement
from pclc.evaluation.budget import by_row, is_inside
from pclc.evaluation.progress import bar
from pclc.evaluation.traps import look_at_accuracy

_MOST_DRAWS: dict[Mode, int] = {"quick": 4, "standard": 16, "full": 64}
_QUERIES: dict[Mode, int] = {"quick": 100, "standard": 500, "full": 1000}
_BLIND_DRAWS = 8
_STEPS: dict[Mode, int] = {"quick": 20, "standard": 40, "full": 100}


class RandomOutcome(NamedTuple):
    """What is left of a random model.

    Attributes:
        clean, claimed, worst: (N,) scores in [0, 1], shares of fresh draws that are right.
        x_adv: (N, ...) the final candidates.
        draws: how many the last means were over, 1 where none were climbed.
        gain: what the last doubling of the draws took from the mean score; None where there is no gradient to climb.
        steps: what was tried.
    """

    clean: Tensor
    claimed: Tensor
    worst: Tensor
    x_adv: Tensor
    draws: int
    gain: float | None
    steps: tuple[Step, ...]


class RandomRun(Run):
    """The state of that audit."""

    def go(self, progress: bool) -> Judgement:
        """Attack through means over draws, and score by fresh ones."""
        self.rows, self.alpha = self.order, ALPHA
        with bar(6 * len(self.x) + len(CHECKS) * self._checked, progress) as self.advance:
            self.outcome = self._attack(self.mode)
            near = look_at_accuracy(self.share(self.clean), self.subject.classes)
            if not near:
                self._early()
                self._late()
                if self._suspicious and not self._refuted and self.mode != "full":
                    self.escalated = True
                    self.outcome = self._attack(MODES[MODES.index(self.mode) + 1], self.outcome)
                    self._late()
        self.overstatement = self._overstatement()
        return self._judge(near)

    def _attack(self, mode: Mode, earlier: RandomOutcome | None = None) -> RandomOutcome:
        """Attack through means over draws, which are doubled until that gains no more.

        `earlier` candidates stay, and the doubling then goes beyond the draws that made them: with as many or fewer the
        gain over them is small, converged or not.

        Transfers from a twin come before them, where there is one. Square comes after them in mode "full", and in every
        mode where there is no gradient.

        Candidates are chosen by some draws and scored by fresh ones, so that the luck of the choice is not in the
        score. A model that draws once for all images of a pass is scored image by image: bounds ask for independent
        scores.
        """
        norm, eps = self.threat.norm, self.threat.eps
        x, y, index = self.x[self.rows], self.y[self.rows], self.index[self.rows]
        model, execution = self.subject.model, self.execution
        steps = list(earlier.steps) if earlier else []

        def candidates(attack: Attack, through: Model) -> Tensor:
            found = run_quietly(attack, through, x, y, self.seed, index, execution)
            return by_row(is_inside(found, x, norm, eps), found, x)

        with frozen(model), Victim(model, execution) as victim:
            fresh = replace(execution, batch_size=1) if shares_draws(victim, x) else execution
        if earlier:
            clean, claimed, x_adv = earlier.clean, earlier.claimed, earlier.x_adv
        else:
            claim = claim_attack(norm, eps)
            x_adv = candidates(claim, model)  # nothing mended, as whoever claims it has it
            clean, claimed = score(model, x, y, fresh), score(model, x_adv, y, fresh)
            self.advance(str(claim), len(x))
        best = score(model, x_adv, y, execution)

        def attempt(attack: Attack, blind: bool = False) -> None:
            started = time.perf_counter()
            before = float(best.mean())
            new = candidates(attack, self.subject.craft)
            scores = score(model, new, y, execution)
            better = scores < best
            x_adv[better], best[better] = new[better], scores[better]
            broke = round((before - float(best.mean())) * len(x))
            steps.append(Step(str(attack), len(x), broke, time.perf_counter() - started, blind))
            self.advance(str(attack), len(x))

        attempt(Noise(eps, norm=norm), blind=True)
        for transfer in transfers(self.threat):
            attempt(replace(transfer, stop="never"), blind=True)
        draws, gain, passed = 1, 1.0, earlier.draws if earlier else 0
        while self.threat.differentiable and (gain >= GAIN or draws <= passed) and draws < _MOST_DRAWS[mode]:
            before, draws = float(best.mean()), 2 * draws
            attempt(EOT(APGD(eps, _STEPS[mode], norm=norm, objective="margin"), draws))
            attempt(EOT(ProbabilityMargin(eps, _STEPS[mode], norm=norm, restarts=1, logit_scale=0.1), draws))
            gain = before - float(best.mean())
        if mode == "full" or not self.threat.differentiable:
            attempt(EOT(Square(eps, _QUERIES[mode], norm=norm), _BLIND_DRAWS), blind=True)
        worst = score(model, x_adv, y, fresh)
        last = gain if self.threat.differentiable else None
        return RandomOutcome(clean, claimed, worst, x_adv, draws, last, tuple(steps))

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

    def _tell(self, scene: Scene) -> None:
        scene.gained_draws = self.outcome.gain

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
