from .analysis import analyze as analyze
from .demo import demo_pair as demo_pair
from .extraction.extract import extract as extract
from .extraction.result import Extraction as Extraction
from .report.result import Analysis as Analysis
from .unmerging.result import Unmerged as Unmerged
from .unmerging.unmerge import unmerge as unmerge
