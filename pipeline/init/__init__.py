"""`init`: looks at a folder of pictures with captions, or at a data set of the hub, and writes a recipe for it."""
