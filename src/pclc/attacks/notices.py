"""What an attack says aloud without giving up; a filter on a category silences or promotes it."""


class AttackWarning(UserWarning):
    """Something that makes an attack's result less than it seems."""


class ZeroGradientWarning(AttackWarning):
    """Some gradients were exactly zero, so that the attack stood still: that it fails is no evidence."""


class ProbabilityWarning(AttackWarning):
    """The model seems to return probabilities where logits are expected."""


class UnreachableWarning(AttackWarning):
    """The steps together are too short to reach the edge of the ball."""
