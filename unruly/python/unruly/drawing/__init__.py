"""What every page is drawn with: charts, tables, numbers, and one analysis as a page sees it."""
