"""Build the optional compiled matching kernel; everything else is declared in pyproject.toml."""

from pathlib import Path
from shutil import copyfile

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

KERNEL_DIR = Path("src/trimtab/matching/kernel")
EXAMPLES_DIR = Path("examples")

NO_KERNEL = """\
trimtab: the compiled matching kernel could not be built ({error}).
trimtab: the pure Python matcher will be used: same answers, slower.
trimtab: to get the kernel, install a C compiler and the Python headers, then install trimtab again.
"""


class BuildKernel(build_ext):
    """Compile the kernel, and say in plain words what it means if that fails."""

    def build_extension(self, ext: Extension) -> None:
        try:
            super().build_extension(ext)
        except Exception as error:
            print(NO_KERNEL.format(error=error), flush=True)
            raise


class BuildWithExamples(build_py):
    """Copy the examples into the package, where `trimtab examples` finds them."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib) / "trimtab" / "examples"
            folder.mkdir(parents=True, exist_ok=True)
            for path in sorted(EXAMPLES_DIR.iterdir()):
                if path.is_file():
                    copyfile(path, folder / path.name)


def kernel_extensions() -> list[Extension]:
    """Return the kernel as an optional extension, or nothing if there are no sources for it."""
    sources = sorted(path.as_posix() for path in KERNEL_DIR.glob("*.c"))
    if not sources:
        return []
    return [
        Extension(
            "trimtab.matching._kernel",
            sources=sources,
            depends=sorted(path.as_posix() for path in KERNEL_DIR.glob("*.h")),
            include_dirs=[KERNEL_DIR.as_posix()],
            extra_compile_args=["-O3"],
            optional=True,
        )
    ]


setup(ext_modules=kernel_extensions(), cmdclass={"build_ext": BuildKernel, "build_py": BuildWithExamples})
