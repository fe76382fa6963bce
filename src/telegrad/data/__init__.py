"""Small data sets, part of the package so that examples need no network.

``digits.npz``: the test part of "Optical Recognition of Handwritten Digits", E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository (1998), doi:10.24432/C50P49, licensed under CC BY 4.0:
1,797 images of 8 by 8 pixels with values from 0 to 16, in the order of scikit-learn's
``load_digits``. Stored here unchanged, as compressed bytes.
"""

from typing import Any

import numpy as np

__all__ = ["digits"]


def digits() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return images of shape (1797, 8, 8) as float32 from 0 to 1, and the digit each shows (int64).

    Examples:
        >>> images, labels = tg.data.digits()
        >>> images.shape, labels[:5].tolist()
        ((1797, 8, 8), [0, 1, 2, 3, 4])
    """
    # Here, since it takes long to import and few programs need it.
    from importlib.resources import files

    with (files(__name__) / "digits.npz").open("rb") as file, np.load(file) as stored:
        images = stored["images"].astype(np.float32) / np.float32(16)
        return images, stored["labels"].astype(np.int64)
