from .gradient import location_gradient as location_gradient
from .prune_and_regrow import reselect as reselect
from .prune_and_regrow import swap as swap
