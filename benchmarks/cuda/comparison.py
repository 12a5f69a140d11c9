"""Time and memory of rivals for one load, in one process.

Separate processes for the memory of each rival would take too many minutes. Here the rivals share
their frozen weights. The memory of each is its peak minus the memory before it was built, plus the
shared weights, which is what it would need alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch

from benchmarks._measure import Rival, Timing, interleaved
from benchmarks._rivals import MissingRivalError
from benchmarks.cuda.session import Row, Session, quietly
from loca_theory.transforms.matrices import dct_matrix

Step = Callable[[], object]
Build = Callable[[], tuple[Step, Mapping[str, Any]]]
Judge = Callable[[dict[str, Row], dict[str, Timing]], None]

_MIB = 2**20
_BLOCK_SECONDS = 0.03


def compare(
    session: Session,
    load: str,
    prepare: Callable[[], tuple[Mapping[str, Build], int]],
    *,
    judge: Judge,
    rounds: int = 5,
) -> None:
    """Measure every rival that can be built, and report a row for each.

    Args:
        session: The session of the check.
        load: Description of the load in the rows.
        prepare: Returns functions that build the rivals, by name, and the bytes that the rivals
            share. Each function returns the rival's step and facts for its row.
        judge: Adds to the rows what follows from several of them, such as ratios and targets.
        rounds: Number of timing rounds.
    """
    if _times_key(load) in session.done:
        return

    def work(_: Row) -> None:
        _make_workspaces(session.device)
        with quietly():
            rivals, shared_bytes = prepare()
        _compare(session, load, rivals, shared_bytes, judge, rounds)

    row = {"key": f"{load} | set-up", "load": load, "rival": "all", "hidden": True}
    session.attempt(row, work, seconds=4.0 if session.is_cuda else 0.0)


def _times_key(load: str) -> str:
    return f"{load} | times"


def _compare(
    session: Session,
    load: str,
    rivals: Mapping[str, Build],
    shared_bytes: int,
    judge: Judge,
    rounds: int,
) -> None:
    steps: dict[str, Step] = {}
    rows: dict[str, Row] = {}
    takes: dict[str, float] = {}
    for name, build in rivals.items():
        row: Row = {"key": f"{load} | {name}", "load": load, "rival": name}

        def measure(row: Row, name: str = name, build: Build = build) -> None:
            _forget_shared_matrices()
            before = session.allocated()
            with quietly():
                try:
                    step, facts = build()
                except MissingRivalError as error:
                    row["left_out"] = str(error)
                    return
                row |= facts
                step()
            start = time.perf_counter()
            peak = session.peak_of(lambda: [step() for _ in range(2)])
            takes[name] = (time.perf_counter() - start) / 2
            if peak is not None and "peak_mib" not in row:
                row["peak_mib"] = (peak - before + shared_bytes) / _MIB
            row["waits"] = session.synchronisations_of(step)
            steps[name], rows[name] = step, row

        session.attempt(row, measure, seconds=2.0 if session.is_cuda else 0.0, final=False)
        if "left_out" in row:
            session.finish(row)
    if not steps:
        return

    for name in _too_many(takes, session.left()):
        rows[name]["left_out"] = "no time for timing"
        session.finish(rows.pop(name))
        del steps[name]
    if not steps:
        return

    def measure_times(_: Row) -> None:
        with quietly():
            times = interleaved(
                {name: Rival(step) for name, step in steps.items()},
                rounds=2 if session.tiny else rounds,
                block_seconds=0.001 if session.tiny else _BLOCK_SECONDS,
                device=session.device,
                attempts=1,
                seconds=min(session.left(), 20.0),
            )
        for name, row in rows.items():
            row["ms"] = 1e3 * times[name].median
            row["host_ms"] = 1e3 * statistics.median(times[name].enqueueing)
            row["timing"] = times[name].as_record()
        judge(rows, times)
        for row in rows.values():
            session.finish(row)

    row = {"key": _times_key(load), "load": load, "rival": "all", "hidden": True}
    session.attempt(row, measure_times)


def _too_many(takes: Mapping[str, float], left: float) -> list[str]:
    """The last rivals that must be dropped so that there is time to measure the others.

    Args:
        takes: Seconds per step of each rival.
        left: Remaining seconds.
    """
    # A warm-up and a step to calibrate the blocks, then two rounds of a warm-up and a block each.
    needed = {
        name: 2 * step + 2 * (step + max(step, _BLOCK_SECONDS)) for name, step in takes.items()
    }
    names = list(needed)
    fitting = len(names)
    while fitting and sum(needed[name] for name in names[:fitting]) > left:
        fitting -= 1
    return names[fitting:]


def verdict(target: str, found: float, *, reached: bool) -> dict[str, Any]:
    """An entry of the table of targets: whether the target was reached."""
    return {"target": target, "found": found, "reached": reached}


def judge_adapters(rows: dict[str, Row], times: dict[str, Timing], *, is_model: bool) -> None:
    """Add ratios to the rivals, and the targets of LoCA with default settings."""
    for rival, key in (("LoRA", "of_lora"), ("FourierFT", "of_fourierft")):
        for name, row in rows.items():
            if rival in times:
                row[key] = times[rival].ratio_to(times[name])
    frozen = rows.get("frozen")
    for name, row in rows.items():
        if frozen is not None:
            row["marginal_ms"] = row["ms"] - frozen["ms"]
        if name in ("LoCA", "LoCA locations"):
            row["verdicts"] = _verdicts(row, rows, is_model=is_model)


def _verdicts(row: Row, rows: dict[str, Row], *, is_model: bool) -> list[dict[str, Any]]:
    found = []
    if "of_fourierft" in row:
        ahead = row["of_fourierft"]
        found.append(verdict("speed over FourierFT's above 1", ahead, reached=ahead > 1))
    if is_model and "of_lora" in row:
        near = row["of_lora"]
        found.append(
            verdict("steps per second over LoRA's at least 0.9", near, reached=near >= 0.9)
        )
    for rival, most in (("FourierFT", 1.0), ("LoRA", 1.09)):
        if "peak_mib" in row and rows.get(rival, {}).get("peak_mib"):
            times = row["peak_mib"] / rows[rival]["peak_mib"]
            found.append(
                verdict(
                    f"peak memory over {rival}'s at most {most:g}"
                    if most > 1
                    else f"peak memory over {rival}'s below 1",
                    times,
                    reached=times <= most if most > 1 else times < 1,
                )
            )
    return found


def _make_workspaces(device: str) -> None:
    """Let the libraries allocate their workspaces, so that they do not count for any rival.

    Backward passes run in a separate thread, which has its own workspaces.
    """
    for dtype in (torch.float32, torch.bfloat16):
        layer = torch.nn.Linear(64, 64, device=device, dtype=dtype)
        x = torch.ones(64, 64, device=device, dtype=dtype, requires_grad=True)
        layer(x).sum().backward()


def _forget_shared_matrices() -> None:
    """Clear the cache of DCT matrices, so that they count for every rival that needs them."""
    dct_matrix.cache_clear()  # pyright: ignore[reportFunctionMemberAccess]
