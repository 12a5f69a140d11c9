from .interpretations import INTERPRETATIONS as INTERPRETATIONS
from .results import ToyResult as ToyResult
from .searches import SEARCHES as SEARCHES
from .study import toy as toy
