"""Array types. Each alias is defined here only, and has one meaning in every module."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Complexes = NDArray[np.complex128]
Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Int8s = NDArray[np.int8]
Int16s = NDArray[np.int16]
Int32s = NDArray[np.int32]
UInt8s = NDArray[np.uint8]
Indices = NDArray[np.intp]
