"""What is learned: layers, translators, retrieval models, losses, metrics, LightningModules. Knows no path."""
