"""The defaults of reading models; here so that the command line can show them at once."""

from bricks.backends import default
from bricks.graph.form import ModelForm

GRANULARITY = "executed"
PROGRAMS_RUNTIME = default(ModelForm.PROGRAMS)  # of programs, unless another one is named
