"""Functions that several tests call, for either library."""

__all__ = ["make_cube", "make_exp", "make_scaled"]


def make_cube(lib):
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, gradient):
            (x,) = ctx.saved_tensors
            return gradient * 3.0 * x * x

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            return tangent * 3.0 * x * x

    return Cube


def make_exp(lib):
    class Exp(lib.autograd.Function):
        """Saves its result, by ``setup_context``."""

        @staticmethod
        def forward(x):
            return lib.exp(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)
            ctx.save_for_forward(output)

        @staticmethod
        def backward(ctx, gradient):
            (out,) = ctx.saved_tensors
            return gradient * out

        @staticmethod
        def jvp(ctx, tangent):
            (out,) = ctx.saved_tensors
            return tangent * out

    return Exp


def make_scaled(lib):
    class Scaled(lib.autograd.Function):
        """Two tensors, other arguments between, two results."""

        @staticmethod
        def forward(ctx, x, power, y, label):
            ctx.power = power
            ctx.label = label
            ctx.save_for_backward(x, y)
            return x**power * y, x + y

        @staticmethod
        def backward(ctx, first, second):
            x, y = ctx.saved_tensors
            dx = first * ctx.power * x ** (ctx.power - 1) * y + second
            return dx, None, first * x**ctx.power + second, None

    return Scaled
