"""An engine that does an import's work on several cores or machines. It uses the pipeline; nothing below knows it."""
