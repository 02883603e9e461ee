"""Compiles every `.pyx` in the package, several at a time; pyproject.toml has the rest."""

import os

from Cython.Build import cythonize
from setuptools import Extension, setup

setup(
    ext_modules=cythonize(
        # Debugging symbols would take a quarter of the time.
        [Extension("*", ["src/pyromq_native/**/*.pyx"], extra_compile_args=["-O3", "-g0"])],
        include_path=["src"],
        language_level=3,
    ),
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
