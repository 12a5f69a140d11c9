from .linear import LoCALinear as LoCALinear
from .search.following import follow as follow
from .search.schedule import AlternatingSchedule as AlternatingSchedule
from .spectrum import CosineSpectrum as CosineSpectrum
from .trainer import LoCACallback as LoCACallback
from .tuner.config import LoCAConfig as LoCAConfig
from .tuner.layer import LoCALayer as LoCALayer
from .tuner.model import LoCAModel as LoCAModel
