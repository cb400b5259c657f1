"""Models: layers, translators, retrieval models, losses, metrics, LightningModules. Knows no paths of a run."""
