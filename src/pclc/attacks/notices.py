"""What an attack says aloud without giving up; a filter on a category silences or promotes it."""


class AttackWarning(UserWarning):
    """Something that makes an attack's result less than it seems."""


class ZeroGradientWarning(AttackWarning):
    """Some gradients were exactly zero, so that the attack stood still: that it fails is no evidence."""


class ProbabilityWarning(AttackWarning):
    """The model seems to return probabilities where logits are expected."""


class UnreachableWarning(AttackWarning):
    """The steps together are too short to reach the edge of the ball."""


class RandomModelWarning(AttackWarning):
    """Passes over the same images differ, which an attack that expects one answer is too weak for."""


class DynamicModelWarning(AttackWarning):
    """The model asks for derivatives inside its forward pass, as one that optimises at test time does."""


class SquareStrongerWarning(AttackWarning):
    """Square fooled examples that the attacks with gradients did not: gradients may be masked."""
