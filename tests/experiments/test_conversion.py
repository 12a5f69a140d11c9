"""The error of LoCA converted to LoRA."""

import numpy as np
import pytest
from click.testing import CliRunner
from scipy import fft

from experiments import conversion


def test_the_spectrum_is_that_of_the_increment():
    found = conversion.spectrum(80, 150, 3)
    rng = np.random.default_rng(3)
    s = np.zeros(80 * 80)
    s[rng.choice(80 * 80, 150, replace=False)] = rng.standard_normal(150)
    increment = fft.idctn(s.reshape(80, 80), norm="ortho")
    energy = np.linalg.svd(increment, compute_uv=False) ** 2
    assert found.rows == (s.reshape(80, 80) != 0).any(1).sum()
    kept = np.cumsum(energy) / energy.sum()
    assert found.ranks == tuple(int((kept < part).sum()) + 1 for part in (0.9, 0.99))
    # S is in single precision.
    assert found.errors == pytest.approx([1 - kept[7], 1 - kept[63]], abs=1e-6)


def test_the_command_prints_a_row_for_every_number_of_components(monkeypatch):
    monkeypatch.setattr(conversion, "SIZES", ((70, (100, 200), 2), (90, (100,), 1)))
    quick, whole = (CliRunner().invoke(conversion.main, given) for given in (["--quick"], []))
    assert [done.exit_code for done in (quick, whole)] == [0, 0]
    assert quick.output.count("70 × 70") == whole.output.count("70 × 70") == 2
    assert ("90 × 90" in quick.output, "90 × 90" in whole.output) == (False, True)
