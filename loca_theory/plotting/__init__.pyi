from .catalogue import FIGURES as FIGURES
from .drawing import figure as figure
from .page.report import Page as Page
from .page.report import report as report
from .pictures import plot as plot
