"""The defaults of reading models; here so that the command line can show them at once."""

from bricks.backends import default
from bricks.graph.form import ModelForm

GRANULARITY = "executed"
PROGRAMS_RUNTIME = default(ModelForm.PROGRAMS)  # of programs, unless another one is named

# The forms of numbers that models are quantised to; by default they stay as they are.
UNQUANTIZED, INT8 = "none", "int8"
QUANTIZE = (UNQUANTIZED, INT8)
