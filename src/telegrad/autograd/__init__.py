"""What users differentiate with."""

from telegrad.autograd.anomaly import detect_anomaly, set_detect_anomaly
from telegrad.autograd.backward import backward, grad

__all__ = ["backward", "detect_anomaly", "grad", "set_detect_anomaly"]
