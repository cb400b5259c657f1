"""The corpus that is drawn here: scenes of coloured things, with captions from a grammar."""
