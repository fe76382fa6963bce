"""Familiar names of ``torch.nn`` that telegrad lacks, and what to write instead."""

METHODS: dict[str, str] = {
    "half": "there are no 16-bit floats: write module.float()",
    "bfloat16": "there are no 16-bit floats: write module.float()",
    "type": "write module.to(dtype)",
    "compile": "nothing is compiled: leave it out",
    "share_memory": "workers share large arrays by themselves: leave it out",
    "get_parameter": "write dict(module.named_parameters())[path]",
    "get_submodule": "write dict(module.named_modules())[path]",
    "register_full_backward_hook": "write register_hook(...) of the tensor that forward gives",
}
"""Of a Module."""

CLASSES: dict[str, str] = {
    "Flatten": "write x.flatten(1) in forward",
    "Identity": "write nn.Sequential()",
    "LeakyReLU": "write telegrad.where(x > 0, x, slope * x) in forward",
    "ELU": "write telegrad.where(x > 0, x, telegrad.expm1(x.clamp(None, 0.0))) in forward",
    "LogSoftmax": "write telegrad.log_softmax(x, axis=...) in forward",
    "Softplus": "write telegrad.softplus(x) in forward",
    "LSTM": "there is nn.GRU",
    "RNN": "there is nn.GRU",
    "Conv1d": "write nn.Conv2d with a height of 1",
    "BatchNorm1d": "write nn.LayerNorm, or nn.BatchNorm2d of x[:, :, None, None]",
    "GroupNorm": "write nn.functional.layer_norm of x.reshape(n, groups, -1) in forward",
    "EmbeddingBag": "write embedding(indices).sum(axis=1) in forward, of nn.Embedding",
    "TransformerEncoderLayer": "write it of nn.MultiheadAttention, nn.LayerNorm and nn.Linear",
    "ParameterList": "set each Parameter as an attribute, or nn.ModuleList of their modules",
    "KLDivLoss": "write (y * (telegrad.log(y) - x)).sum() / len(x), of the logarithm x",
    "L1Loss": "write (x - y).abs().mean()",
    "SmoothL1Loss": "write nn.HuberLoss()",
    "BCELoss": "write nn.BCEWithLogitsLoss(), of what goes into the sigmoid",
    "DataParallel": "layers on several workers are telegrad.distributed.RemoteModule's",
}
"""Of the module `telegrad.nn`."""

FUNCTIONS: dict[str, str] = {
    "leaky_relu": "write telegrad.where(x > 0, x, slope * x)",
    "elu": CLASSES["ELU"].removesuffix(" in forward"),
    "one_hot": "write telegrad.eye(classes)[labels]",
    "normalize": "write x / x.norm(axis=1, keepdims=True)",
    "kl_div": CLASSES["KLDivLoss"],
    "l1_loss": CLASSES["L1Loss"],
    "smooth_l1_loss": "write nn.functional.huber_loss(x, y)",
    "binary_cross_entropy": "write nn.functional.binary_cross_entropy_with_logits(x, y)",
    "pad": "write telegrad.pad(x, widths), whose widths are NumPy's",
}
"""Of the module `telegrad.nn.functional`."""

UTILS: dict[str, str] = {
    "clip_grad_value_": "write p.grad = p.grad.clip(-value, value) for each",
    "parameters_to_vector": "write telegrad.concat([p.flatten() for p in parameters])",
    "vector_to_parameters": "under telegrad.no_grad() write p.copy_(part.reshape(p.shape))",
}
"""Of the module `telegrad.nn.utils`."""
