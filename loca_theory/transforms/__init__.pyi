from .cosine import dct as dct
from .cosine import dct2 as dct2
from .cosine import idct as idct
from .cosine import idct2 as idct2
