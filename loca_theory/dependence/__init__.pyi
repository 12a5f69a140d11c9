from .results import CorrelationResult as CorrelationResult
from .structures import ar1 as ar1
from .structures import blocks as blocks
from .structures import spiked as spiked
from .study import correlate as correlate
