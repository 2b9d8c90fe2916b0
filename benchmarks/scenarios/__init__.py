"""What can be measured. A new scenario is one more file with a `SCENARIO`, and one more name here."""

from . import gil, users
from .scenario import Scenario

SCENARIOS: dict[str, Scenario] = {module.SCENARIO.name: module.SCENARIO for module in (users, gil)}
