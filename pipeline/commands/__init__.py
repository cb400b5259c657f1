"""The commands of `bildwort`, grouped by what they are about."""
