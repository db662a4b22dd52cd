"""Other tools' output becomes a run: readers of formats, and the writer of the trace."""

from unruly.ingest.importer import Imported, import_files
from unruly.ingest.join import join_files
from unruly.ingest.model import Options

__all__ = ["Imported", "Options", "import_files", "join_files"]
