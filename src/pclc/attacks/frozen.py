"""A model as an attack may use it, and as it was before when the attack is over."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from pclc.attacks.types import Model

# Another thread would put layers that both use into its own mode and layout in the middle of a pass. One lock for all
# models, since two of them may share layers.
_ONE_THREAD = threading.RLock()


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Put every submodule into eval mode and ask for no gradients of parameters; undo both, whatever happens.

    Modes are put back submodule by submodule, since a model may hold some in training and some in eval mode; those that
    came through `torch.jit.freeze` have none. Gradients that the parameters have accumulated are not touched. A plain
    function has none of this, and passes as it is, as does a module that it calls. Other threads wait until the module
    is given back.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.Dropout()).train()
        >>> with frozen(model):
        ...     model[1].training, model[0].weight.requires_grad
        (False, False)
        >>> model[1].training, model[0].weight.requires_grad
        (True, True)
    """
    if not isinstance(model, nn.Module):
        yield
        return
    with _ONE_THREAD:
        modes = [(module, module.training) for module in model.modules() if hasattr(module, "training")]
        # Those that were made in inference mode cannot be changed, and never get a gradient.
        wanted = [weight for weight in model.parameters() if weight.requires_grad and not weight.is_inference()]
        try:
            _into_eval_mode(model)
            for weight in wanted:
                weight.requires_grad_(False)
            yield
        finally:
            for module, training in modes:
                if module.training != training:
                    # This may do more than set the flag, as in layers that merge weights in eval mode.
                    module.train(training)
            for module, training in modes:
                module.training = training
            for weight in wanted:
                weight.requires_grad_(True)


def _into_eval_mode(model: nn.Module) -> None:
    try:
        model.eval()
    except NotImplementedError as error:
        raise ValueError(
            "Expected `model` to have an eval mode, but got the output of torch.export, which has none: export the "
            "model in eval mode and pass the result as a function, lambda x: model(x)."
        ) from error
