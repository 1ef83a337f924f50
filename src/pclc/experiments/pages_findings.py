"""What the figures of the study of adversarial training say to its questions, in sentences made from intervals."""

from collections.abc import Mapping, Sequence

from pclc.evaluation.statistics import SeedComparison
from pclc.experiments.block import Block
from pclc.experiments.pages_text import bullets, compare, counted, difference, quoted

BASELINES = ("ce", "trades")
_PC_ARMS = ("ce + pc", "clean share + pc", "trades + pc")
# What is said first: arms, each beside its rivals.
_FIRST = {"ce + pc": (*BASELINES, "ce + mae"), "trades + pc": ("trades", "ce + pc")}

# Points between the ends of an interval that still tells that two arms are about the same: the leads are not larger.
_TELLING = 2.0

_WHY = """PC pulls on every false class whose probability comes within the margin, .995, of the true one's. On an
adversarial example whose true class has less than that, these are all of them. Averaged over them, as here,
PC is then K / (K - 1) times the mean absolute error 1 - f_y, up to a constant (f_y is the probability of
the true class), and its structure over the false classes plays no part. Two arms test that: `ce + mae` has
the mean absolute error in place of PC, and `ce + pc, margin 0.5` has a smaller margin, at which the
structure acts and PC lets go earlier. The weight of each term was tuned for its arm."""


def robust_row(block: Block) -> str:
    """The row of AutoAttack."""
    return next(row for row in block.rows if row.startswith("autoattack"))


def values(block: Block, row: str, column: str) -> Mapping[int, float]:
    """Figures by seed; none where the block does not have the column."""
    return block.entry(row, column).values if column in block.columns else {}


def in_short(block: Block) -> str:
    """What PC does beside its rivals, in sentences that also name what it cannot be compared with."""
    said, named = list[str](), dict[str, None]()
    for arm, rivals in _FIRST.items():
        leads = {rival: lead for rival in rivals if isinstance(lead := _lead(block, arm, rival), SeedComparison)}
        parts = [
            f"{_words(lead)} `{rival}`: {_numbers(lead)}, clean {_clean(block, arm, rival)}"
            for rival, lead in leads.items()
        ]
        left = [rival for rival in rivals if rival not in leads]
        if left:
            parts.append(f"not compared with {quoted(left)}: fewer than two seeds in common")
        run = bool(values(block, robust_row(block), arm))
        said.append(f"`{arm}` is {'; '.join(parts) if run else 'not run'}.")
        named |= dict.fromkeys([arm, *leads])
    doubtful = _doubtful(block, list(named))
    doubts = f" {_doubts(doubtful)}" if doubtful else ""
    return f"**In short**, in points under AutoAttack ({block.dataset}, {block.model}): {' '.join(said)}{doubts}"


def leads_over_ce(blocks: Sequence[Block]) -> str:
    """What the PC term adds to cross-entropy with each network, where two seeds tell; "" where they tell of none."""
    leads = ((block, _lead(block, "ce + pc", "ce")) for block in blocks)
    return "; ".join(
        f"{block.dataset}, {block.model}: {_numbers(lead)}, clean {_clean(block, 'ce + pc', 'ce')}"
        for block, lead in leads
        if isinstance(lead, SeedComparison)
    )


def findings(blocks: Sequence[Block], seconds: Mapping[tuple[str, str], float]) -> list[str]:
    """What the intervals over seeds say about the questions of the study, and which of them they cannot answer.

    Args:
        blocks: those of which something was run.
        seconds: of an average training, by the model of a block and by column.
    """
    parts = [
        "Differences are in points under AutoAttack at equal seeds, on the same test images, with 95 % intervals of "
        "the mean over seeds; an interval that contains 0 decides nothing. That settings were chosen once, and may "
        "have been lucky, is in no interval, and of many intervals one may be wrong by chance."
    ]
    if doubtful := list(dict.fromkeys(name for block in blocks for name in _doubtful(block, block.columns))):
        parts[0] += f" {_doubts(doubtful)}"
    helps = [line for baseline in BASELINES for line in _against(blocks[0], baseline)]
    if helps:
        parts += [f"**All arms, {blocks[0].dataset}, {blocks[0].model}**", bullets(helps)]
    return [*parts, _WHY, _mae(blocks), _structure(blocks), *_lasting(blocks), _cheap(blocks, seconds)]


def _lead(block: Block, first: str, second: str) -> SeedComparison | float | None:
    """By accuracy under AutoAttack."""
    row = robust_row(block)
    return compare(values(block, row, first), values(block, row, second), block.step)


def _side(found: SeedComparison | float) -> int:
    """1 or -1 where the interval is above or below 0, otherwise 0."""
    if isinstance(found, float):
        return 0
    return 1 if found.interval.low > 0 else -1 if found.interval.high < 0 else 0


def _words(found: SeedComparison) -> str:
    return {1: "above", -1: "below", 0: "not distinguishable from"}[_side(found)]


def _compared(block: Block, first: str, second: str) -> str | None:
    """One arm against another, in a sentence; None where they have no seed in common."""
    found = _lead(block, first, second)
    if found is None:
        return None
    if isinstance(found, float):
        start = f"`{first}` and `{second}` have only one seed in common, which decides nothing"
    else:
        start = f"`{first}` is {_words(found)} `{second}`"
    return f"{start}: {_numbers(found)}; clean accuracy {_clean(block, first, second)}."


def _clean(block: Block, first: str, second: str) -> str:
    return difference(compare(values(block, "clean", first), values(block, "clean", second), block.step))


def _numbers(found: SeedComparison | float) -> str:
    return difference(found) if isinstance(found, float) else f"{difference(found)}, {counted(found.seeds, 'seed')}"


def _against(block: Block, baseline: str) -> list[str]:
    """The other arms by what they do beside a baseline."""
    sides: dict[int, list[str]] = {1: [], -1: [], 0: []}
    few: list[str] = []
    for column in block.columns:
        found = _lead(block, column, baseline)
        if column != baseline:
            (sides[_side(found)] if isinstance(found, SeedComparison) else few).append(column)
    if not any(sides.values()):
        return []
    return [
        f"Above `{baseline}`: {quoted(sides[1])}.",
        f"Below `{baseline}`: {quoted(sides[-1])}.",
        f"Not distinguishable from `{baseline}`: {quoted(sides[0])}.",
        *([f"Not compared, with fewer than two seeds in common: {quoted(few)}."] if few else []),
    ]


def _mae(blocks: Sequence[Block]) -> str:
    """The plain sentence about the mean absolute error, whichever way it falls."""
    for block in blocks:
        found = _lead(block, "ce + mae", "ce + pc")
        if found is None:
            continue
        numbers = f"`ce + mae` minus `ce + pc` is {_numbers(found)} ({block.model})"
        if isinstance(found, float) or (_side(found) == 0 and found.interval.high - found.interval.low > _TELLING):
            return f"**Whether the mean absolute error does as well as PC is open**: {numbers}. Our seeds cannot tell."
        return {
            1: f"**The plain mean absolute error does better than PC**: {numbers}. At this margin the structure "
            "over the false classes does not help.",
            -1: f"**PC does better than the plain mean absolute error**: {numbers}. That the term is bounded does not "
            "explain all of it.",
            0: f"**PC and the plain mean absolute error cannot be told apart**: {numbers}. At this margin nothing "
            "speaks for the structure over the false classes.",
        }[_side(found)]
    return "**Whether the mean absolute error does as well as PC is not known**: the two arms share no seed."


def _structure(blocks: Sequence[Block]) -> str:
    """What a smaller margin gives."""
    texts = [text for block in blocks if (text := _compared(block, "ce + pc, margin 0.5", "ce + pc"))]
    return (
        f"**With a smaller margin**: {texts[0]}"
        if texts
        else "**What a smaller margin gives is not known**: `ce + pc, margin 0.5` and `ce + pc` share no seed."
    )


def _lasting(blocks: Sequence[Block]) -> list[str]:
    """What becomes of a difference to TRADES when the same network is trained for longer."""
    lines = []
    for short, long in ((one, other) for one in blocks for other in blocks if _is_longer(other, one)):
        for arm in _PC_ARMS:
            before, after = _lead(short, arm, "trades"), _lead(long, arm, "trades")
            if before is not None and after is not None:
                texts = (f"with {b.model} {_numbers(lead)}" for b, lead in ((short, before), (long, after)))
                lines.append(f"`{arm}` minus `trades`: {'; '.join(texts)}. {_what_lasts(before, after)}")
    if not lines:
        return ["**Whether a lead over TRADES lasts in longer training is not known**: no two lengths can be compared."]
    return ["**Longer training**", bullets(lines)]


def _is_longer(block: Block, other: Block) -> bool:
    """Whether it is the same network on the same data, trained for longer."""
    (model, epochs), (same, fewer) = (each.model.removesuffix(" epochs").rsplit(", ", 1) for each in (block, other))
    return (block.dataset, model) == (other.dataset, same) and int(epochs) > int(fewer)


def _what_lasts(before: SeedComparison | float, after: SeedComparison | float) -> str:
    if isinstance(before, SeedComparison) and _side(before) < 1:
        return "No lead was shown that could last."
    if isinstance(before, float) or isinstance(after, float):
        return "Whether it lasts is open: one seed decides nothing."
    return {1: "The lead lasts.", 0: "The lead is no longer distinguishable from none.", -1: "The lead is lost."}[
        _side(after)
    ]


def _cheap(blocks: Sequence[Block], seconds: Mapping[tuple[str, str], float]) -> str:
    """PC where crafting takes one step, and what both cost."""
    for block in blocks:
        text = _compared(block, "pc-fast", "fast")
        if text:
            taken = [f"{seconds[block.model, arm]:.1f} s (`{arm}`)" for arm in ("pc-fast", "fast")]
            return f"**At the cheap end**: {text} A training took {' and '.join(taken)} on average."
    return "**What PC gives at the cheap end is not known**: `pc-fast` and `fast` share no seed."


def _doubts(columns: Sequence[str]) -> str:
    """AutoAttack's figures of these are worth less."""
    return f"Audits of {quoted(columns)} refuted a claim or could not judge one ([Audits](#audits))."


def _doubtful(block: Block, columns: Sequence[str]) -> list[str]:
    return [column for column in columns if set(block.audits.get(column, {}).values()) - {"not refuted"}]
