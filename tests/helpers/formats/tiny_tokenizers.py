"""Tiny tokenizers of the common kinds, built in code."""

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

END = "<|end|>"
LINES = [
    "The quick brown fox jumps over the lazy dog, again and again.",
    "def add(a, b):\n    return a + b\n",
    "Größe, naïveté, 日本語, Привет, 👩‍👩‍👧 and € 5.",
]


def byte_level() -> PreTrainedTokenizerFast:
    """GPT-2 style byte-level BPE with added tokens, which are not byte-encoded."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(
        LINES, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, special_tokens=[END], show_progress=False)
    )
    tokenizer.add_tokens(["   ", "naïve ż"])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, model_max_length=16)


def byte_fallback() -> PreTrainedTokenizerFast:
    """Llama 2 style SentencePiece with a leading space and byte fallback."""
    pieces = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "▁▁", "é", "�"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("▁", "a"), ("▁", "▁")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, byte_fallback=True, unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "<unk>"])
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>")


def metaspace() -> PreTrainedTokenizerFast:
    """T5 style Unigram: spaces as ▁, no separator."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.train_from_iterator(
        LINES, trainers.UnigramTrainer(vocab_size=90, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False)
    )
    tokenizer.add_tokens([AddedToken("<extra>", normalized=False)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def word_piece() -> PreTrainedTokenizerFast:
    """BERT style WordPiece: continuation pieces, spaces removed before punctuation."""
    pieces = ["[UNK]", "do", "not", "##ing", "n't", ".", ",", "'", "s", "##s"]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=True)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
