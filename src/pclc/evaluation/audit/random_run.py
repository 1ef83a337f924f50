"""One audit of a random model, whose examples are right now and then."""

from collections.abc import Sequence

from torch import Tensor

from pclc.evaluation.audit.finding import CHECKS
from pclc.evaluation.audit.ladder import MODES, Mode
from pclc.evaluation.audit.randomness import RandomOutcome, attack_random
from pclc.evaluation.audit.run import Run
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import Step
from pclc.evaluation.audit.verdict import ALPHA, Judgement
from pclc.evaluation.progress import bar
from pclc.evaluation.traps import look_at_accuracy


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
                    self.outcome = self._attack(MODES[MODES.index(self.mode) + 1])
                    self._late()
        self.overstatement = self._overstatement()
        return self._judge(near)

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
