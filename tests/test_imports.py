"""What a user must have: torch and numpy to import and use the library, the rest only where it is used."""

import subprocess
import sys

PROGRAM = """
import sys
for name in ("safetensors", "typer", "rich", "pooch", "PIL", "scipy", "sklearn", "matplotlib", "plotly", "jinja2",
             "platformdirs", "triton", "tensorboard", "torchvision"):
    sys.modules[name] = None  # importing it fails
import torch, pclc
model = pclc.create_model("lenet5")
x, y = torch.rand(2, 1, 28, 28), torch.tensor([1, 2])
pclc.PCLoss()(model(x), y).backward()
assert pclc.attacks.PGD(eps=0.1, alpha=0.05, steps=2)(model, x, y).shape == x.shape
"""


def test_torch_and_numpy_are_enough() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)


def test_a_missing_extra_is_named() -> None:
    program = "import sys; sys.modules['sklearn'] = None; import pclc; pclc.load_dataset('digits')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'pclc[data]'" in done.stderr
