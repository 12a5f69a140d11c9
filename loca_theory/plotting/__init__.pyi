from .drawing import figure as figure
from .page import Page as Page
from .page import report as report
from .paper import FIGURES as FIGURES
from .pictures import plot as plot
