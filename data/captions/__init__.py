"""The caption table: what people and translators wrote about the images."""
