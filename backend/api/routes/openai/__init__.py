"""OpenAI-compatible endpoints: requests, texts and errors in the shapes of OpenAI's API."""
