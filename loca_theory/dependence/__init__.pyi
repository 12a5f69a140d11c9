from .results import CorrelationResult as CorrelationResult
from .structure import Structure as Structure
from .structure import ar1 as ar1
from .structure import blocks as blocks
from .structure import spiked as spiked
from .study import correlate as correlate
