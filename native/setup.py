"""Compiles every `.pyx` beside the package; everything else is said in pyproject.toml."""

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        [Extension("*", ["src/pyromq_native/*.pyx"], extra_compile_args=["-O3"])],
        include_path=["src"],
        language_level=3,
    )
)
