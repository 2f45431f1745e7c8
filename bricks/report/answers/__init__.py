"""The first line of every answer: one or two sentences, from a typed result.

A module for each kind of result; the words that all of them share are in
:mod:`~bricks.report.answers.words`.
Commands print the sentence first, JSON has it as ``answer``, and pages show it as their headline.
Must not compute results.
"""
