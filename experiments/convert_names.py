"""Replace the letters of methods by their names in stored tables and manifests, once."""

import json
from pathlib import Path

import click
import pyarrow as pa
from pyarrow import compute, parquet

from loca_theory.expressivity.methods.names import LETTERS

# Tables whose columns hold letters, and these columns.
_TABLES = {
    **dict.fromkeys(("methods", "minilm/analyze", "separable_map", "sim_1", "sim_2", "sim_3"),
                    ("method",)),
    "theorem1_margin": ("worse", "better"),
    "published/rounded-verdicts": ("winner", "true_winner"),
}  # fmt: skip


def _column_name(name: str) -> str:
    """``retained_LoRA`` for ``retained_R``."""
    head, between, letter = name.rpartition("_")
    return f"{head}{between}{LETTERS.get(letter, letter)}" if head in {"retained", "true"} else name


def _renamed(entry: object) -> object:
    """An entry of a manifest with names: lists of letters, and mappings from them."""
    if isinstance(entry, list):
        return [LETTERS.get(name, name) if isinstance(name, str) else name for name in entry]
    if isinstance(entry, dict):
        return {LETTERS.get(key, key): value for key, value in entry.items()}
    return entry


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True))
def main(folder: Path) -> None:
    """Convert the tables in a folder of figures."""
    for table_name, columns in _TABLES.items():
        path = folder / f"{table_name}.parquet"
        table = parquet.read_table(path)
        metadata = table.schema.metadata
        for column in columns:
            index, values = table.column_names.index(column), table[column]
            for letter, name in LETTERS.items():
                is_letter = compute.equal(values, letter)
                values = compute.if_else(is_letter, pa.scalar(name, values.type), values)
            table = table.set_column(index, table.schema.field(index), values)
        table = table.rename_columns([_column_name(name) for name in table.column_names])
        if metadata and b"pandas" in metadata:
            described = json.loads(metadata[b"pandas"])
            for column in described["columns"]:
                for key in ("name", "field_name"):
                    column[key] = column[key] and _column_name(column[key])
            metadata = {**metadata, b"pandas": json.dumps(described).encode()}
        parquet.write_table(table.replace_schema_metadata(metadata), path)
        manifest_path = path.with_suffix(".manifest.json")
        manifest = json.loads(manifest_path.read_text(encoding="utf-8"))
        grid = manifest["grid"]
        grid |= {"methods": _renamed(grid["methods"])} if "methods" in grid else {}
        manifest |= {"spent": _renamed(manifest["spent"])} if "spent" in manifest else {}
        lines = ",\n ".join(f"{json.dumps(key)}: {json.dumps(manifest[key])}" for key in manifest)
        manifest_path.write_text(f"{{\n {lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
