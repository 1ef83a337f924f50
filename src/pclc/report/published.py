"""What the paper prints for the same model under the same attack."""

from dataclasses import replace
from typing import NamedTuple

from pclc.evaluation import Accuracy
from pclc.experiments.experiment import Cell, load_experiment
from pclc.experiments.published import PublishedFigure
from pclc.report.runs import Run
from pclc.report.series import accuracy_of
from pclc.training import TrainConfig

_TABLES = ("table1", "table2", "table3", "table5")


class Beside(NamedTuple):
    """A published figure and ours.

    `same_training` is whether the run was trained as the experiment is here, up to the seed; one on a part or a changed
    copy of the data set was not.
    """

    figure: PublishedFigure
    attack: str
    ours: Accuracy
    same_training: bool


def beside_published(run: Run) -> list[Beside]:
    """Figures of the paper for this run's data, network and loss, under attacks with exactly the same settings."""
    if run.config is None or run.evaluation is None:
        return []
    content, about = run.config["run"], run.evaluation.conditions
    if about.data != f"{content['dataset']['name']}, test" or about.eight_bit:  # figures of other images
        return []
    config = TrainConfig.from_dict(content["train"])
    measured = {
        outcome.attack: accuracy_of(outcome.robust) for outcome in run.evaluation.outcomes if outcome.substitute is None
    }
    found: dict[tuple[str, str], Beside] = {}
    for table in _TABLES:
        experiment = load_experiment(table)
        for cell in experiment.cells(seeds=[config.seed]):
            if not _is_of(cell, content["dataset"]["name"], content["model"]["name"], config):
                continue
            same = replace(cell.training.config, seed=config.seed) == config and "hash" not in content["dataset"]
            rows = [("clean", "clean", accuracy_of(run.evaluation.clean))]
            for attack in cell.attacks:
                text = str(attack.attack)
                if not attack.transfer and text in measured:
                    rows.append((attack.name, text, measured[text]))
            for row, text, ours in rows:
                figure = experiment.figure(cell, row)
                if figure is not None:
                    found.setdefault((table, row), Beside(figure, text, ours, same))
    return list(found.values())


def _is_of(cell: Cell, dataset: str, model: str, config: TrainConfig) -> bool:
    theirs = cell.training.config
    return (cell.training.dataset, cell.training.model, theirs.loss) == (
        dataset,
        model,
        config.loss,
    ) and theirs.adversarial == config.adversarial
