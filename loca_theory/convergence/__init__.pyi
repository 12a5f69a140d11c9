from .results import ToyResult as ToyResult
from .study import toy as toy
