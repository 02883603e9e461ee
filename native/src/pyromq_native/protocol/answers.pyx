"""The common part of all answers; the functions are in `answers.pxd`, where the compiler finds them for each module."""

from pyromq.protocol.codes import CURRENT_VERSION, Language

LANGUAGE = Language.PYTHON
VERSION = CURRENT_VERSION
