"""Registration of LoCA with PEFT.

PEFT has no public interface for new methods: its methods are members of the enum
:class:`peft.PeftType`. This module extends the enum at run time and then calls PEFT's own
``register_peft_method``. It checks the version of PEFT and that the enum was extended, so that a
change of PEFT's internals causes a clear error.
"""

from __future__ import annotations

import warnings
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from inspect import signature
from pathlib import Path
from typing import Any

from packaging.version import Version

from loca_theory.adapters.search.files import SEARCH_FILE, load_search, save_search
from loca_theory.adapters.search.training import LocationTraining
from loca_theory.errors import ResourceError
from loca_theory.sweeps.files import write_atomically

# The tests in tests/adapters pass with PEFT from the first version up to before the second.
TESTED = ("0.21", "0.22")
NAME = "LOCA"
HOW_TO_LOAD = """
## How to load

This adapter was trained with LoCA. The package `loca-theory` registers LoCA with PEFT on import:

```python
import loca_theory.adapters  # pip install "loca-theory[adapters]"
from peft import PeftModel

model = PeftModel.from_pretrained(base_model, "PATH_OR_NAME_OF_THIS_ADAPTER")
```
"""


def check_peft() -> None:
    """Check that PEFT is installed in a version that this package was tested with.

    Raises:
        ResourceError: PEFT is missing or has another version.
    """
    low, high = TESTED
    wanted = f'pip install "peft>={low},<{high}"'
    try:
        found = version("peft")
    except PackageNotFoundError:
        msg = f'LoCA in PEFT needs peft: {wanted}, or pip install "loca-theory[adapters]"'
        raise ResourceError(msg) from None
    if not Version(low) <= Version(found) < Version(high):
        msg = f"LoCA was tested with peft>={low},<{high}, but peft {found} is installed: {wanted}"
        raise ResourceError(msg)


def register(config_class: type, model_class: type) -> None:
    """Register the method with PEFT; a second call does nothing.

    Raises:
        ResourceError: PEFT's enum of methods cannot be extended.
    """
    from peft import PeftModel
    from peft.mapping import PEFT_TYPE_TO_TUNER_MAPPING
    from peft.utils import PeftType, register_peft_method
    from transformers import PreTrainedModel

    if NAME in PeftType.__members__ and PeftType[NAME] in PEFT_TYPE_TO_TUNER_MAPPING:
        return
    _extend(PeftType)
    register_peft_method(name=NAME.lower(), config_cls=config_class, model_cls=model_class)
    _extend_saving(PeftModel, PeftType[NAME])
    _extend_loading(PeftModel, PeftType[NAME])
    _extend_saving_of_transformers(PreTrainedModel)
    _extend_loading_of_transformers(PreTrainedModel)


def _extend_saving(model_class: Any, kind: Any) -> None:
    """Save a word on how to load the adapter, and the state of a search that is under way."""
    save = model_class.save_pretrained

    @wraps(save)
    def save_pretrained(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = save(self, *args, **kwargs)
        given = signature(save).bind(self, *args, **kwargs)
        given.apply_defaults()
        root, chosen = Path(given.arguments["save_directory"]), given.arguments["selected_adapters"]
        mine = [name for name, config in self.peft_config.items() if config.peft_type == kind]
        if not mine or not given.arguments["is_main_process"]:
            return result
        _explain(root / "README.md")
        for name in mine if chosen is None else set(mine) & set(chosen):
            folder = root / ("" if name == "default" else name)
            _write_search(self, name, folder)
        return result

    model_class.save_pretrained = save_pretrained


def _extend_loading(model_class: Any, kind: Any) -> None:
    """Take up the search of an adapter that is trained on; without its state it is over."""
    load = model_class.load_adapter

    @wraps(load)
    def load_adapter(self: Any, model_id: Any, adapter_name: str, *args: Any, **kwargs: Any) -> Any:
        result = load(self, model_id, adapter_name, *args, **kwargs)
        if self.peft_config[adapter_name].peft_type == kind:
            _read_search(self, adapter_name, model_id, self._split_kwargs(kwargs)[0])
        return result

    model_class.load_adapter = load_adapter


def _extend_saving_of_transformers(model_class: Any) -> None:
    """Save the search of a model that has its adapter by ``add_adapter`` of transformers."""
    save = model_class.save_pretrained

    @wraps(save)
    def save_pretrained(self: Any, save_directory: Any, *args: Any, **kwargs: Any) -> Any:
        result = save(self, save_directory, *args, **kwargs)
        given = signature(save).bind(self, save_directory, *args, **kwargs)
        given.apply_defaults()
        if self._hf_peft_config_loaded and given.arguments["is_main_process"]:
            _write_search(self, self.active_adapters()[0], Path(save_directory))
        return result

    model_class.save_pretrained = save_pretrained


def _extend_loading_of_transformers(model_class: Any) -> None:
    """Take up the search of an adapter that transformers loads with ``is_trainable=True``."""
    load = model_class.load_adapter

    @wraps(load)
    def load_adapter(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = load(self, *args, **kwargs)
        given = signature(load).bind(self, *args, **kwargs).arguments
        if given.get("peft_model_id") is not None:
            name = given.get("adapter_name") or "default"
            _read_search(self, name, given["peft_model_id"], _download_options(given))
        return result

    model_class.load_adapter = load_adapter


def _download_options(given: dict[str, Any]) -> dict[str, Any]:
    """How transformers downloads, by the arguments of its ``load_adapter``."""
    from peft import PeftModel

    further = given.get("kwargs", {})
    found: dict[str, Any] = {}
    for options in (
        getattr(given.get("load_config"), "download_kwargs", None),
        further.get("download_kwargs"),
        given.get("adapter_kwargs"),
    ):
        found |= options or {}
    if given.get("local_files_only"):
        found["local_files_only"] = True
    return PeftModel._split_kwargs(found)[0]


def _training_of(model: Any, adapter_name: str) -> LocationTraining | None:
    """What moves the locations of an adapter; None if it is not one of LoCA that is trained."""
    for module in model.modules():
        spectra = getattr(module, "loca_spectrum", {})
        if adapter_name in spectra:
            return spectra[adapter_name].location_training
    return None


def _write_search(model: Any, adapter_name: str, folder: Path) -> None:
    """Write the state of a search that is under way; remove an earlier file otherwise."""
    training = _training_of(model, adapter_name)
    if training is None:
        (folder / SEARCH_FILE).unlink(missing_ok=True)
    else:
        save_search(training, folder)


def _read_search(model: Any, adapter_name: str, model_id: Any, options: dict[str, Any]) -> None:
    """Continue the search of an adapter that is trained on; without its file it is over."""
    training = _training_of(model, adapter_name)
    if training is not None:
        path = _search_file(model_id, options)
        training.finish() if path is None else load_search(training, path)


def _search_file(model_id: Any, options: dict[str, Any]) -> Path | None:
    """The state of a search beside an adapter, in a folder or on the hub."""
    from huggingface_hub import _CACHED_NO_EXIST, hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    folder = Path(model_id)
    if folder.is_dir():
        path = folder / (options.get("subfolder") or "") / SEARCH_FILE
        return path if path.is_file() else None
    options = {name: value for name, value in options.items() if name != "use_auth_token"}
    try:
        return Path(hf_hub_download(model_id, SEARCH_FILE, **options))
    except LocalEntryNotFoundError:
        where = {name: options.get(name) for name in ("cache_dir", "revision")}
        file = f"{options.get('subfolder') or '.'}/{SEARCH_FILE}".removeprefix("./")
        if try_to_load_from_cache(model_id, file, **where) is _CACHED_NO_EXIST:
            return None
        msg = f"whether a search is under way in {model_id} is not known offline, so its locations "
        msg += "are taken to be final; load it once with a network to go on with a search"
        warnings.warn(msg, stacklevel=2)
        return None
    except EntryNotFoundError:
        return None


def _extend(enum: Any) -> None:
    """Add the member ``NAME`` to an enum of strings."""
    if NAME in enum.__members__:
        return
    member = str.__new__(enum, NAME)
    try:
        member._name_, member._value_ = NAME, NAME
        member._sort_order_ = len(enum.__members__)
        setattr(enum, NAME, member)
        enum._member_names_.append(NAME)
        enum._member_map_[NAME] = member
        enum._value2member_map_[NAME] = member
        known = enum(NAME) is member and enum[NAME] is member and NAME in list(enum)
    except (AttributeError, TypeError, KeyError, ValueError):
        known = False
    if not known:
        msg = f"{enum.__qualname__} of peft {version('peft')} cannot be extended; "
        msg += f'pip install "peft>={TESTED[0]},<{TESTED[1]}"'
        raise ResourceError(msg)


def _explain(card: Path) -> None:
    text = card.read_text(encoding="utf-8")
    if HOW_TO_LOAD.strip() not in text:
        whole = text.rstrip() + "\n" + HOW_TO_LOAD
        write_atomically(card, lambda partial: partial.write_text(whole, encoding="utf-8"))
