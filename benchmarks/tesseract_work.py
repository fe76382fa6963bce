"""The same functions as Tesseracts in their local mode, where tesseract-core and -jax are there.

A Tesseract is a module with schemata and endpoints; in local mode it runs in this process, behind
the same encoding of its payload as over HTTP. Its endpoints are compiled once, as telegrad's are.
"""

import importlib.util
import types
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["MISSING", "tesseract_of"]

MISSING = next(
    (
        f"Tesseract is left out: {package} is not installed (pip install 'tesseract-core[runtime]' "
        "tesseract-jax, in an environment of its own)"
        for package in ("tesseract_core", "tesseract_jax")
        if importlib.util.find_spec(package) is None
    ),
    "",
)
"""Why it can't be measured here; empty if it can."""


def tesseract_of(f: Callable[..., Any], arrays: Any) -> Callable[..., Any]:
    """Return a function of JAX whose call, and derivative, runs in a Tesseract."""
    from tesseract_core import Tesseract
    from tesseract_jax import apply_tesseract

    names = [f"x{i}" for i in range(len(arrays))]
    served = Tesseract.from_tesseract_api(_module(f, names, arrays))
    return lambda *given: apply_tesseract(served, dict(zip(names, given)))["y"]


def _module(f: Callable[..., Any], names: list[str], arrays: Any) -> types.ModuleType:
    from pydantic import create_model
    from tesseract_core.runtime import Array, Differentiable, Float32

    fields: Any = {
        name: (Differentiable[Array[array.shape, Float32]], ...)
        for name, array in zip(names, arrays, strict=True)
    }
    inputs = create_model("InputSchema", **fields)
    outputs = create_model("OutputSchema", y=(Differentiable[Float32], ...))
    compiled = jax.jit(f)
    pulled = jax.jit(lambda values, cotangent: jax.vjp(f, *values)[1](cotangent))

    def values_of(given: Any) -> list[Any]:
        return [getattr(given, name) for name in names]

    def apply(inputs: Any) -> Any:
        return outputs(y=np.asarray(compiled(*values_of(inputs))))

    def vector_jacobian_product(
        inputs: Any,
        vjp_inputs: set[str],
        vjp_outputs: set[str],
        cotangent_vector: dict[str, Any],
    ) -> Any:
        gradients = pulled(values_of(inputs), np.float32(cotangent_vector["y"]))
        found = dict(zip(names, gradients, strict=True))
        return {name: np.asarray(found[name]) for name in vjp_inputs}

    def abstract_eval(abstract_inputs: Any) -> Any:
        return {"y": {"shape": (), "dtype": "float32"}}

    # Tesseract reads the types of its endpoints.
    apply.__annotations__ = {"inputs": inputs, "return": outputs}
    vector_jacobian_product.__annotations__["inputs"] = inputs
    module = types.ModuleType("tesseract_api")
    vars(module).update(
        InputSchema=inputs,
        OutputSchema=outputs,
        apply=apply,
        vector_jacobian_product=vector_jacobian_product,
        abstract_eval=abstract_eval,
    )
    return module
