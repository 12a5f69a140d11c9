from .random import generator as generator
from .results import Result as Result
from .runner import Runner as Runner
from .store import Cell as Cell
from .store import ResultStore as ResultStore
