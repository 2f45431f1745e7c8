"""The public library: a bench, over everything that the packages below answer."""
