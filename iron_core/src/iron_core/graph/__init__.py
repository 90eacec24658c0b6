"""Composing operators: per-call values, handles and views, tracing, folds, the reference run."""
