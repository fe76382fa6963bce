"""What users differentiate with."""

from telegrad.autograd import forward_ad, functional
from telegrad.autograd.anomaly import detect_anomaly, set_detect_anomaly
from telegrad.autograd.backward import backward, grad
from telegrad.autograd.function import Function

__all__ = [
    "Function",
    "backward",
    "detect_anomaly",
    "forward_ad",
    "functional",
    "grad",
    "set_detect_anomaly",
]
