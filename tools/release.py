"""What a release would be: wheel and sdist, built, looked into, installed and tried.

    python tools/release.py [folder]     # build/dist by default

Needs no network: an environment to try them in gets what the distribution declares, linked from the
one that runs this, and nothing else. Nothing is published.
"""

import email
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from email.message import Message
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = ["build", "check_contents", "environment_with", "needs_of", "try_out", "wheel_of"]

ROOT = Path(__file__).resolve().parent.parent
TRIAL = """
import importlib.util
from importlib.resources import files

import telegrad as tg
from telegrad.distributed import LocalCluster, rpc
from telegrad.distributed import autograd as dist_autograd

assert "site-packages" in tg.__file__, tg.__file__
assert (files(tg) / "py.typed").is_file()
assert tg.data.digits()[0].shape == (1797, 8, 8)
undeclared = [each for each in ("torch", "rich", "cryptography") if importlib.util.find_spec(each)]
assert not undeclared, undeclared
x = tg.tensor([1.0, 2.0], requires_grad=True)
with LocalCluster(["other"]), dist_autograd.context() as context_id:
    y = rpc.rpc_sync("other", tg.square, (x,))
    dist_autograd.backward(context_id, [y.sum()])
    assert dist_autograd.get_gradients(context_id)[x].tolist() == [2.0, 4.0]
print(tg.__version__)
"""


def build(folder: Path) -> tuple[Path, Path]:
    """Builds the sdist, and from that the wheel."""
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run(command)
    (sdist,) = folder.glob("*.tar.gz")
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


def run(command: list[str], **options: object) -> str:
    """What a command prints; if it fails, all that it said is raised."""
    done = subprocess.run(command, capture_output=True, text=True, **options)  # type: ignore[call-overload]
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return str(done.stdout)


def wheel_of(wheel: Path) -> tuple[set[str], Message]:
    """The files of a wheel and its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        return names, email.message_from_bytes(archive.read(described))


def needs_of(wheel: Path) -> list[str]:
    """What a wheel declares to need without any extra."""
    declared = wheel_of(wheel)[1].get_all("Requires-Dist") or []
    return [each for each in declared if "extra ==" not in each]


def check_contents(sdist: Path, wheel: Path) -> None:
    """Raises where a file of the package is missing, or one is there that should not be."""
    package = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src/telegrad").glob("**/*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    names, described = wheel_of(wheel)
    inside = {name for name in names if ".dist-info/" not in name}
    if inside != package:
        raise RuntimeError(f"the wheel and src differ: {sorted(inside ^ package)}")
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    lacking = {f"src/{name}" for name in package} | {"LICENSE", "README.md", "pyproject.toml"}
    if lacking - sources:
        raise RuntimeError(f"the sdist lacks {sorted(lacking - sources)}")
    changes = (ROOT / "CHANGELOG.md").read_text()
    version = described["Version"]
    if not re.search(rf"^## {re.escape(version)} ", changes, re.MULTILINE):
        raise RuntimeError(f"CHANGELOG.md has no section for {version}")


def closure(requirements: list[str]) -> set[str]:
    """The distributions that these requirements need, without extras, by name."""
    found: set[str] = set()
    waiting = [Requirement(each) for each in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if needed and name not in found:
            found.add(name)
            waiting += map(Requirement, metadata.distribution(name).requires or [])
    return found


def clean_environment(folder: Path, requirements: list[str]) -> Path:
    """The Python of a new environment that has these requirements and nothing else."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in closure(requirements):
        files = metadata.distribution(name).files or []
        for top in {path.parts[0] for path in files if path.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(metadata.distribution(name).locate_file(top)))
            if not (site / top).exists():
                (site / top).symlink_to(source)
    return folder / "bin/python"


def environment_with(distribution: Path, folder: Path, requirements: list[str]) -> Path:
    """The Python of a new environment with a wheel or an sdist installed; no index is asked."""
    is_sdist = distribution.suffix == ".gz"
    python = clean_environment(folder, [*requirements, *(["hatchling"] if is_sdist else [])])
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check"]
    run([*pip, *offline, str(distribution)])
    return python


def try_out(python: Path, folder: Path) -> str:
    """Runs a gradient over two processes, and the command; the version that was met."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    version = run([str(python), "-c", TRIAL], cwd=folder, env=clean).strip()
    run([str(python.with_name("telegrad")), "--help"], cwd=folder, env=clean)
    return version


def main(folder: Path) -> None:
    """Builds, checks, installs and tries both; says what would be published."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in (*folder.glob("*.whl"), *folder.glob("*.tar.gz")):
        old.unlink()
    sdist, wheel = build(folder)
    check_contents(sdist, wheel)
    for distribution in (wheel, sdist):
        place = folder / f"try-{distribution.suffix[1:]}"
        shutil.rmtree(place, ignore_errors=True)
        version = try_out(environment_with(distribution, place, needs_of(wheel)), folder)
        digest = hashlib.sha256(distribution.read_bytes()).hexdigest()
        size = distribution.stat().st_size / 1024
        print(f"{distribution.name}: telegrad {version}, {size:,.0f} KiB, sha256 {digest}")
    if run(["git", "status", "--porcelain"], cwd=ROOT):
        print("note: the working tree has changes that are not committed")
    if f"## {version} (unreleased)" in (ROOT / "CHANGELOG.md").read_text():
        print(f"note: CHANGELOG.md calls {version} unreleased")
    print(f"built, installed and tried in {folder}; nothing was published")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build/dist")
