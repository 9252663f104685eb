"""What a job specification may say, and what is wrong with one that says something else.

``check`` judges a resolved specification without the file system (coordinator
and ctl share it). ``evertrain.jobspec.load`` reads YAML files and
``evertrain.jobspec.dump`` writes them; both are imported on their own, since
they bring pydantic and a YAML parser with them.
"""

from evertrain.jobspec.check import check
from evertrain.jobspec.problem import Problem, Severity

__all__ = ["Problem", "Severity", "check"]
