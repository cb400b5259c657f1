"""LightningModules: how models are trained, validated and tested."""
