"""What an analysis is written as: text for a terminal, JSON, JUnit XML, and other tools' files."""
