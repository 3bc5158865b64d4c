"""The Hugging Face language model: loading, tokenizer, and hooks around its MLPs."""
