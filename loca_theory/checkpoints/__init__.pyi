from .analysis import analyze as analyze
from .demo import demo_pair as demo_pair
from .extraction import extract as extract
from .extraction_result import Extraction as Extraction
from .results import Analysis as Analysis
