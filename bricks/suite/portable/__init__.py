"""Suites in one file, with the program that measures them: nothing of this package is installed.

Must not know any runtime, nor how bricks are chosen.
"""
