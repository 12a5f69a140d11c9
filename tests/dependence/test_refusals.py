"""Calls that the package's functions refuse, each with its message."""

import re
from dataclasses import dataclass

import numpy as np
import pytest

from loca_theory.dependence import Structure, ar1, blocks, correlate, spiked
from loca_theory.dependence.closed_forms import (
    energy_retained_with_spike,
    limit_boundary,
    selection_loss_of_separable,
    selection_loss_with_spike,
)
from loca_theory.dependence.design import Protocol
from loca_theory.dependence.structures import STRUCTURES
from loca_theory.errors import InvalidArgumentError
from loca_theory.expressivity import METHODS, Method

GRID = "rho must be finite and increase, not "
TWICE = "structures must list at least one name and no name twice, not "
NOT_POSITIVE = ": the covariance would not be positive definite"


class Own(Structure):
    """A structure under a name of the package, unless a test gives another."""

    name, parameter = "ar1", "rho"

    def __init__(self, **attributes):
        vars(self).update(attributes)

    def bounds(self, p, q):  # noqa: ARG002
        return 0.0, 1.0

    def family(self, p, q, rng):
        z = rng.standard_normal((p, q))
        return lambda _: z


@dataclass
class Changeable(Own):
    name: str = "changeable"


class Empty(Method):
    name = "empty"

    def limit(self, budget):  # noqa: ARG002
        return 0.5


def study(structures="ar1", **options):
    return correlate(16, structures=structures, **{"ranks": 2, "draws": 8, **options})


def found(size=16, **options):
    return correlate(size, **{"ranks": 2, "structures": "ar1", **options})


def under(protocol, method):
    return study(protocols=(protocol,), methods=(method,))


def at(name, value):
    return STRUCTURES[name].check(4, 4, value)


CALLS = [
    # a study
    (lambda: study(("ar1", "ar1")), TWICE + "ar1, ar1"),
    (lambda: study(()), TWICE + "none"),
    (lambda: study(("spiked", spiked(2))), TWICE + "spiked, spiked"),
    (lambda: study(rho=(0.2, 0.1)), GRID + "0.2, 0.1"),
    (lambda: study(rho=()), GRID + "none"),
    (lambda: study("shared-mean", rho=(0.0, np.inf)), GRID + "0, inf"),
    (lambda: study("shared-mean", rho=(np.nan,)), GRID + "nan"),
    (lambda: study(fraction=(0.1,)), "fraction=... has no effect unless structures=... includes"),
    (lambda: study(detect=True, null_draws=100), "needs at least 400 null draws, not 100"),
    (lambda: study("odd"), "unknown structure 'odd'; choose from shared-mean"),
    (lambda: study("spiked:0"), "number of spikes must be at least 1, not 0"),
    (lambda: study(spiked(17)), "can have at most 16 spikes, not 17"),
    (lambda: study("ar1:1"), "columns must lie strictly between -1 and 1, not 1" + NOT_POSITIVE),
    (lambda: study("ar1:x"), "structures: ar1 takes a number after its colon, not 'x'"),
    (lambda: study("blocks:2.5"), "blocks takes a whole number after its colon, not '2.5'"),
    (lambda: study("scaled:2"), "scaled has no argument; write scaled, not scaled:2"),
    (lambda: study("block:4"), "unknown structure 'block'; did you mean blocks?"),
    (lambda: study("blocks:5"), "blocks of 5 do not divide both sides of a 16x16 matrix; choose"),
    (lambda: study("blocks:0"), "block must have at least 1 row and column, not 0"),
    (lambda: study(Own()), "Own has the name ar1 of a structure of the package; give it another"),
    (lambda: study(Own(name="a,b")), "Own needs a name: a short text without commas, not 'a,b'"),
    (lambda: study(Own(name="own", parameter="x")), "a parameter: rho, fraction, exponent, not 'x"),
    (lambda: study(Changeable), "Changeable cannot be a key; make its class a dataclass(frozen=Tr"),
    (lambda: study(Structure), "Structure() failed (TypeError: Can't instantiate abstract class"),
    (lambda: study(3), "3 is not a structure; subclass loca_theory.dependence.Structure and give"),
    (lambda: study("nowhere_to_be_found:own"), "cannot import the structure nowhere_to_be_found:"),
    (lambda: study(draws=1), "at least 2 draws"),
    (lambda: study(level=1.0), "the level must lie between 0 and 1, not 1.0"),
    (lambda: study(ranks=(30,)), "rank 30 does not fit"),
    (lambda: study(protocols=()), "protocols must list at least one name and no name twice"),
    (lambda: study(methods=(METHODS["entries"],) * 2), "methods names entries twice"),
    (
        lambda: study(methods=(METHODS["random DCT"],), ranks=(14,)),
        "budget larger than the matrix: rank",
    ),
    (
        lambda: under(Protocol.SAME_DRAW, METHODS["rate-distortion"]),
        "rate-distortion has no value under same",
    ),
    (lambda: under(Protocol.IID_REFERENCE, METHODS["DoRA"]), 'or use protocols="same-draw"'),
    (lambda: study(methods=(Empty(),)), "empty does not approximate matrices and has no exact"),
    # arguments of the one call
    (lambda: found(shape=(3, 4)), "give either size=... (a square matrix) or shape=..."),
    (lambda: found(None), "give either size=... (a square matrix) or shape=..."),
    (lambda: found(16.5), "size must be a whole number, not 16.5"),
    (lambda: found(ranks=2.5), "ranks must be positive whole numbers, not 2.5"),
    (lambda: found(protocols="odd"), "unknown protocol 'odd'; choose from same-draw, iid-ref"),
    (lambda: ar1("x"), "rho_columns must be a number, not 'x'"),
    (lambda: blocks(2.5), "block must be a whole number, not 2.5"),
    (lambda: spiked(None), "spikes must be a whole number, not None"),
    # values of a parameter
    (lambda: at("shared-mean", -0.1), NOT_POSITIVE),
    (lambda: at("equicorrelated", 1.01), NOT_POSITIVE),
    (lambda: at("equicorrelated", -0.2), NOT_POSITIVE),
    (lambda: at("row-equicorrelated", -0.5), NOT_POSITIVE),
    (lambda: at("ar1", 1.0), "ar1 at 4x4 needs -1 < rho < 1, not 1" + NOT_POSITIVE),
    (lambda: at("blocks", -0.4), "<= rho <= 1, not -0.4" + NOT_POSITIVE),
    (lambda: at("scaled", -1.0), "needs 0 <= exponent <= 10, not -1"),
    (lambda: at("spiked", 1.0), "needs 0 <= fraction < 1, not 1"),
    (lambda: at("power-law", -1.0), "needs 0 <= exponent <= 10, not -1"),
    (lambda: at("ar1", np.nan), "needs -1 < rho < 1, not nan"),
    # closed forms
    (lambda: selection_loss_with_spike(-1.0, 0.1), "t must not be negative"),
    (lambda: selection_loss_with_spike(0.1, 1.0), "retained must lie strictly between 0 and 1"),
    (lambda: energy_retained_with_spike(1.0, 0.1), "fraction must be at least 0 and below 1"),
    (lambda: limit_boundary(0.5), "ratio must lie strictly between 0 and 1/2"),
    (lambda: limit_boundary(0.1, 2.0), "aspect in (0, 1]"),
    (lambda: selection_loss_of_separable([-1.0, 2.0], [1.0], 1), "not negative"),
]


@pytest.mark.parametrize(("call", "message"), CALLS)
def test_it_is_refused_and_says_why(call, message):
    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        call()
