"""COCO and its translations, in Karpathy's form."""
