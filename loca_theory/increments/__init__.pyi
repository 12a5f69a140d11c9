from .marchenko_pastur import MarchenkoPastur as MarchenkoPastur
from .printed_test import PrintedTest as PrintedTest
from .spectrum import fit_bulk as fit_bulk
from .total_variation import calibrated_test as calibrated_test
