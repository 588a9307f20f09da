"""Programs that leave Python: folders of C."""

from glasshouse.standalone.folder import export_program
