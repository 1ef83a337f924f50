"""Is a claim of robustness true? Attacks from cheap to thorough, checks of the attacks, and a verdict."""

import platform
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball, check_choice
from pclc.evaluation.audit import checks as _registered  # noqa: F401 (importing it registers them)
from pclc.evaluation.audit.document import STEPS, save_audit
from pclc.evaluation.audit.ladder import MODES, Mode, Threat
from pclc.evaluation.audit.random_run import RandomRun
from pclc.evaluation.audit.result import Audit, Conditions
from pclc.evaluation.audit.run import Run
from pclc.evaluation.audit.standing import merged
from pclc.evaluation.audit.subject import look_at_model
from pclc.evaluation.device import device_name, device_of
from pclc.evaluation.sharing import gather
from pclc.evaluation.state import State
from pclc.evaluation.traps import check_data
from pclc.evaluation.witnesses import DataSource
from pclc.execution import Execution
from pclc.hashes import architecture_hash, model_hash, tensor_hash
from pclc.training.config import LossName
from pclc.training.processes import processes
from pclc.version import __version__

_LOOKED_AT = 64  # examples that the model is looked at with


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
    float64. Checks tell whether the attacks can be trusted. Where they cannot, more attacks are tried, and if that does
    not help, the verdict is "cannot judge". The audit stops once the claim is refuted, except in mode "full".

    With `out`, what each attack broke is saved until the audit is done, and the same call continues after a kill. Under
    `torchrun` the examples are shared among the processes, and each returns the whole result.

    Args:
        model: images (N, ...) to logits (N, K). It runs in eval mode and comes back as it was.
        x: (N, ...) float in [0, 1]; a random sample of what the claim is about, such as a test set or part of it.
        y: (N,) int64, the true classes.
        norm: "Linf" or "L2".
        eps: radius of the ball.
        claim: the accuracy that is claimed at this eps, in (0, 1]; None: what plain PGD-40 on cross-entropy leaves.
        mode: "quick", "standard" or "full" (standard AutoAttack on every example, and more).
        seed: of all random numbers.
        index: (N,) places of the images in their data set; None: 0 ... N - 1.
        loss: name of the loss that the model was trained with, as of `TrainConfig`; its inverse is attacked first.
        twin: a model of the same task trained with cross-entropy, for transfers.
        data: the data set in which the images are at the places `index`; None puts the originals beside the witnesses.
        out: folder for `audit.json` and `witnesses.safetensors`.
        execution: precision of crafting, batch size, graphs; the device is the model's.
        progress: show a bar on the error stream.
        model_name, data_name: their names in the result.

    Example:
        >>> model = torch.nn.Linear(2, 3, bias=False)
        >>> model.weight.data = 1e4 * torch.tensor([[1.0, 0.0], [0.0, 1.0], [-9.0, -9.0]])  # saturated
        >>> x = torch.rand(60, 2)
        >>> found = audit(model.eval(), x, x.argmax(1), eps=0.4, mode="quick")
        >>> found.verdict, found.claimed.value > 0.5, found.robust_accuracy.value < 0.3
        ('refuted', True, True)
    """
    index = check_data(x, y, seed, index)
    check_ball(eps, norm)
    check_choice("mode", mode, MODES)
    if eps == 0:
        raise ValueError("Expected `eps` to be above 0, but got 0: without a perturbation there is nothing to audit.")
    if claim is not None and not (isinstance(claim, float | int) and 0 < claim <= 1):
        raise ValueError(f"Expected `claim` to be an accuracy in (0, 1], such as 0.53, but got {claim!r}.")
    if loss is not None:
        check_choice("loss", loss, get_args(LossName))  # a misspelt name would leave the adaptive attack out
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
        state = State(Path(out) if out else None, STEPS)
        threat = Threat(norm, eps, subject.classes, gap, differentiable, loss, twin)
        run = RandomRun if random else Run
        work = run(
            subject, threat, x, y, index, None if claim is None else float(claim), mode, seed, settings,
            state, about, peers,
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
        steps=merged(work.steps),
        conditions=conditions,
        seconds=time.perf_counter() - started + work.spent_before,
    )
    if out is not None and peers.leads:
        save_audit(result, out)
    if out is not None:
        state.clear()
    return result
