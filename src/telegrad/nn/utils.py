"""What ``torch.nn.utils`` is known for, under its name."""

from telegrad.nn.clipping import clip_grad_norm_

__all__ = ["clip_grad_norm_"]
