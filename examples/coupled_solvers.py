"""Two solvers on two workers, coupled by a fixed point, and differentiated as one.

A rod conducts heat. Its solver is a program of its own, written in C (compiled here; where there is
no compiler, the same in Python), which speaks over pipes and has a hand-written adjoint. At one end
the rod is cooled by a gas, whose solver is telegrad's, on another worker: the gas takes more heat
the hotter the end is, and the end is colder the more it takes. What both agree on is the fixed
point. The rod's conductivities are then fitted to measured temperatures; the first gradient is
compared with differences of the whole coupled solution.

    python examples/coupled_solvers.py [--quick]
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import telegrad as tg
from telegrad.autograd import from_adjoint, from_fixed_point
from telegrad.distributed import LocalCluster, autograd, rpc

CELLS = 6

C_SOLVER = r"""
#include <stdio.h>
#include <stdlib.h>
/* Cell i is joined to cell i-1 (cell -1: a wall at 0 degrees) with conductivity k[i]; each cell is
   heated by 1, and q is taken from the last. Thomas' algorithm; the matrix is symmetric. */
static void solve(int n, const double *k, const double *b, double *x) {
    double d[n], y[n];
    for (int i = 0; i < n; i++) {
        d[i] = k[i] + (i + 1 < n ? k[i + 1] : 0.0);
        y[i] = b[i];
        if (i) { double f = k[i] / d[i - 1]; d[i] -= f * k[i]; y[i] += f * y[i - 1]; }
    }
    for (int i = n - 1; i >= 0; i--)
        x[i] = (y[i] + (i + 1 < n ? k[i + 1] * x[i + 1] : 0.0)) / d[i];
}
static void read_all(int n, double *a) {
    for (int i = 0; i < n; i++)
        if (scanf("%lf", a + i) != 1) exit(1);
}
int main(void) {
    char kind; int n;
    while (scanf(" %c %d", &kind, &n) == 2) {
        double k[n], q, b[n], x[n];
        read_all(n, k);
        if (kind == 's') {
            read_all(1, &q);
            for (int i = 0; i < n; i++) b[i] = 1.0 - (i == n - 1) * q;
            solve(n, k, b, x);
            for (int i = 0; i < n; i++) printf("%.17g ", x[i]);
        } else {
            double v[n], w[n];
            read_all(n, x); read_all(n, v);
            solve(n, k, v, w);
            for (int i = 0; i < n; i++)
                printf("%.17g ", -(w[i] - (i ? w[i - 1] : 0.0)) * (x[i] - (i ? x[i - 1] : 0.0)));
            printf("%.17g", -w[n - 1]);
        }
        printf("\n"); fflush(stdout);
    }
    return 0;
}
"""

PYTHON_SOLVER = """
import sys
import numpy as np
for line in sys.stdin:
    kind, n, *rest = line.split()
    n, numbers = int(n), np.array(rest, float)
    k = numbers[:n]
    matrix = np.diag(k + np.append(k[1:], 0)) - np.diag(k[1:], 1) - np.diag(k[1:], -1)
    if kind == "s":
        b = np.ones(n)
        b[-1] -= numbers[n]
        answer = np.linalg.solve(matrix, b)
    else:
        x, w = numbers[n : 2 * n], np.linalg.solve(matrix, numbers[2 * n :])
        answer = np.append(-np.diff(w, prepend=0) * np.diff(x, prepend=0), -w[-1])
    print(*(repr(float(each)) for each in answer), flush=True)
"""


class Rod:
    """The program, and its adjoint as a function of telegrad; lives on the rod's worker."""

    def __init__(self):
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            command = [sys.executable, "-c", PYTHON_SOLVER]
        else:
            self.folder = tempfile.TemporaryDirectory()
            source, program = Path(self.folder.name, "rod.c"), Path(self.folder.name, "rod")
            source.write_text(C_SOLVER)
            subprocess.run([compiler, "-O2", "-o", program, source], check=True)
            command = [str(program)]
        self.kind = "Python" if compiler is None else "C"
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.solve = from_adjoint(self._solve, self._adjoint)

    def _ask(self, kind, *arrays):
        numbers = " ".join(repr(float(each)) for a in arrays for each in np.atleast_1d(a))
        self.process.stdin.write(f"{kind} {CELLS} {numbers}\n")
        self.process.stdin.flush()
        return np.array(self.process.stdout.readline().split(), float)

    def _solve(self, conductivity, heat):
        temperatures = self._ask("s", conductivity, heat)
        return temperatures, (conductivity, temperatures)

    def _adjoint(self, saved, cotangent):
        answer = self._ask("a", *saved, cotangent)
        return answer[:-1], answer[-1]

    def temperatures(self, conductivity, heat):
        return self.solve(conductivity, heat)

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
        return self.kind


def heat_taken(temperature, strength):
    """The gas: it flows faster, and takes more, where the end of the rod is hot."""
    return strength * temperature * (1.0 + 0.1 * tg.tanh(temperature))


def coupled(rod):
    """The temperatures of the rod when both solvers agree, for given parameters."""

    def step(temperatures, conductivity, strength):
        heat = rpc.rpc_sync("gas", heat_taken, (temperatures[CELLS - 1], strength))
        return rod.rpc_sync().temperatures(conductivity, heat)

    return from_fixed_point(step, tolerance=1e-11)


def main(steps):
    truth = np.linspace(8.0, 14.0, CELLS)
    guess = tg.zeros(CELLS, dtype=tg.float64)
    strength = tg.tensor(0.5, dtype=tg.float64)
    with LocalCluster(["rod", "gas"]):
        rod = rpc.remote("rod", Rod)
        solve = coupled(rod)
        measured = solve(guess, tg.tensor(truth), strength)

        def loss_and_gradient(values):
            with autograd.context() as context_id:
                conductivity = tg.tensor(values, requires_grad=True)
                loss = 1e3 * ((solve(guess, conductivity, strength) - measured) ** 2).sum()
                autograd.backward(context_id, [loss])
                found = autograd.get_gradients(context_id)[conductivity]
                return loss.item(), np.array(found.numpy())

        values = np.full(CELLS, 10.0)
        losses = []
        for step in range(steps):
            loss, gradient = loss_and_gradient(values)
            if step == 0:
                direction, size = np.linspace(1.0, -1.0, CELLS), 1e-4
                ahead, behind = (
                    loss_and_gradient(values + sign * size * direction)[0] for sign in (1, -1)
                )
                by_differences, by_gradient = (ahead - behind) / (2 * size), gradient @ direction
            values = values - 0.5 * loss * gradient / (gradient @ gradient)
            losses.append(loss)
        kind = rod.rpc_sync().close()
    print(f"a rod of {CELLS} cells, solved by a program in {kind}, and a gas on another worker")
    print(f"slope along a direction: {by_gradient:.8f}, by differences {by_differences:.8f}")
    print(f"misfit of the temperatures {losses[0]:.4g} → {losses[-1]:.4g} after {steps} steps")
    if abs(by_gradient - by_differences) > 1e-5 * abs(by_differences):
        sys.exit("expected the slope that differences give")
    if not losses[-1] < losses[0] / 2:
        sys.exit("expected conductivities that fit better")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer steps")
    main(steps=6 if parser.parse_args().quick else 40)
