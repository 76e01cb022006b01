"""vLLM behind lines of JSON, run by the Python of vLLM's own environment: {"prompts", "new_tokens"} -> {"answers"}."""

from __future__ import annotations

import json
import sys


def main() -> None:
    from vllm import LLM, SamplingParams

    model, eager = sys.argv[1:3]
    engine = LLM(
        model=model, dtype="float32", enforce_eager=eager == "eager", max_model_len=4096, enable_prefix_caching=True
    )
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        params = SamplingParams(temperature=0.0, max_tokens=asked["new_tokens"], ignore_eos=True)
        prompts = [{"prompt_token_ids": prompt} for prompt in asked["prompts"]]
        outputs = engine.generate(prompts, params, use_tqdm=False)
        print(json.dumps({"answers": [list(output.outputs[0].token_ids) for output in outputs]}), flush=True)


if __name__ == "__main__":
    main()
