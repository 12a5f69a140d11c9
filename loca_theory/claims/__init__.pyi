from .ledger import Claim as Claim
from .measurement import Estimate as Estimate
from .measurement import Measurement as Measurement
from .measurement import Setting as Setting
from .power import refute as refute
from .reader import load_ledger as load_ledger
from .results import VerificationResult as VerificationResult
from .verification import verify as verify
