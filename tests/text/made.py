"""Tiny tokenizers, each with one habit that breaks careless prompt building."""

from __future__ import annotations

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXTS = [
    "the quick brown fox jumps over the lazy dog. the other dog answers! what is it? it is a fox.\n",
    "system user assistant. word.\n\nNext word\n\nNext 你好，世界 what who when <think> [INST]",
]
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system = '<<SYS>>\n' + messages[0]['content'] + '\n<</SYS>>\n\n' %}"
    "{% else %}{% set loop_messages = messages %}{% set system = '' %}{% endif %}"
    "{% for message in loop_messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Roles must alternate') }}"
    "{% endif %}"
    "{% set content = system + message['content'] if loop.first else message['content'] %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)
GEMMA = (
    "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system role here') }}{% endif %}"
    "{% for message in messages %}{{ '<start_of_turn>' + message['role'] + '\n' + message['content'] | trim + "
    "'<end_of_turn>\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)
THINKING = (
    "{% for message in messages %}{% set content = message['content'] %}"
    "{% if message['role'] == 'assistant' and '</think>' in content %}{% set content = content.split('</think>')[-1] %}"
    "{% endif %}{{ '<|im_start|>' + message['role'] + '\n' + content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
)
FORGETFUL = "{% for m in messages %}{% if m['role'] == 'user' %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"


def _special(*texts: str) -> list[AddedToken]:
    return [AddedToken(text, normalized=False, special=True) for text in texts]


def _byte_tokens() -> list[str]:
    return [f"<0x{byte:02X}>" for byte in range(256)]


def qwen_like() -> PreTrainedTokenizerFast:
    """Byte-level; joins a full stop and the newlines behind it; `<think>` is no special token but the template's."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    words = Regex(r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(words, "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    ])
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(_special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False),
                          AddedToken("<table>", normalized=False), AddedToken("\n\n\n", normalized=False)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")
    fast.chat_template = THINKING
    return fast


def llama_like() -> PreTrainedTokenizerFast:
    """SentencePiece-like: a space in front of each stretch, byte fallback, a BOS by rule and one in the template."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([
        decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.train_from_iterator(["the quick brown fox. what is it? user assistant </s> <s> Hello world"] * 3,
        trainers.BpeTrainer(vocab_size=400, show_progress=False, min_frequency=1,
                            special_tokens=[*_special("<unk>", "<s>", "</s>"), *_byte_tokens()]))
    tokenizer = Tokenizer.from_str(_without_added(tokenizer.to_str(), set(_byte_tokens())))
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = LLAMA
    return fast


def gemma_like() -> PreTrainedTokenizerFast:
    """A space in front of the first word only; the template trims its texts and knows no system role."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    specials = _special("<unk>", "<bos>", "<eos>", "<start_of_turn>", "<end_of_turn>")
    tokenizer.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(
        vocab_size=420, show_progress=False, special_tokens=[*specials, *_byte_tokens()]))
    tokenizer = Tokenizer.from_str(_without_added(tokenizer.to_str(), set(_byte_tokens())))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", unk_token="<unk>")
    fast.chat_template = GEMMA
    return fast


def unigram_like() -> PreTrainedTokenizerFast:
    """A unigram model whose vocabulary holds its control tokens as pieces, which plain text could spell."""
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), ("▁the", -3.0), ("▁fox", -4.0), ("▁", -5.0)]
    pieces += [(letter, -8.0) for letter in "abcdefghijklmnopqrstuvwxyz<>/.|?\n"]
    tokenizer = Tokenizer(models.Unigram(pieces, 0))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(_special("<unk>", "<s>", "</s>"))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")
    fast.chat_template = "{% for m in messages %}{{ '<s>' + m['role'] + ' ' + m['content'] + '</s>' }}{% endfor %}"
    return fast


def base_model() -> PreTrainedTokenizerFast:
    """The Llama-like one without a chat template."""
    fast = llama_like()
    fast.chat_template = None
    return fast


def _without_added(data: str, names: set[str]) -> str:
    parsed = json.loads(data)
    parsed["added_tokens"] = [token for token in parsed["added_tokens"] if token["content"] not in names]
    return json.dumps(parsed)
