from .claim import Claim as Claim
from .estimates import Estimate as Estimate
from .estimates import Tier as Tier
from .ledger import load_ledger as load_ledger
from .results import VerificationResult as VerificationResult
from .verification import verify as verify
