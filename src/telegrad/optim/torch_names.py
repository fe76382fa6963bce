"""Familiar names of ``torch.optim`` that telegrad lacks, and what to write instead."""

OPTIMIZERS: dict[str, str] = {
    "LBFGS": "write scipy.optimize.minimize(f, start, jac=True, method='L-BFGS-B'), whose f gives "
    "the value and the gradient as NumPy's",
}
"""Of the module `telegrad.optim`."""

SCHEDULERS: dict[str, str] = {
    "ExponentialLR": "write LambdaLR(optimizer, lambda epoch: gamma**epoch)",
    "MultiStepLR": "write LambdaLR(optimizer, lambda epoch: gamma ** sum(m <= epoch for m in "
    "milestones))",
    "OneCycleLR": "write SequentialLR of a LinearLR and a CosineAnnealingLR",
    "ReduceLROnPlateau": "set group['lr'] of each group in optimizer.param_groups",
}
"""Of the module `telegrad.optim.lr_scheduler`."""
