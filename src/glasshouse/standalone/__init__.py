"""Programs that leave Python: folders of C, and steps in files."""

from glasshouse.standalone.folder import export_program
from glasshouse.standalone.saved import load_step, save_step
