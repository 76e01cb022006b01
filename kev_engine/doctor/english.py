"""The words for findings in English: a message and a repair for each code and variant, and what had to be assumed."""

from __future__ import annotations

from collections.abc import Mapping

# key: (message, repair)
ENGLISH: Mapping[str, tuple[str, str]] = {
    # who reads whom
    "CROSS_SEGMENT_LEAK": (
        "a query reads another segment in {count} cells ({some}{num_pairs} pairs of segments): first, query {query} "
        "of segment {reader} reads key {key} of segment {read}; the consumer obeys {source}.",
        "Hand the consumer the borders in a form it obeys: a boolean block mask, cu_seqlens, or restarted positions "
        "without a mask where it reads them."),
    "CROSS_SEGMENT_LEAK.shifted": (
        "the borders of {source} lie at {found_borders} where {borders} is right, so a query reads another segment "
        "in {count} cells: first, query {query} of segment {reader} reads key {key} of segment {read}.",
        "Move the borders to {borders}; often BOS or tokens of the template were not counted."),
    "CROSS_SEGMENT_LEAK.outside": (
        "a query reads tokens outside every segment in {count} cells: first, query {query} of segment {reader} reads "
        "key {key}; the consumer obeys {source}.",
        "Mask the tokens that belong to no segment."),
    "LEAK_FUTURE": (
        "a query reads a later key of its own segment in {count} cells: first, query {query} reads key {key}; the "
        "consumer obeys {source}.",
        "Hide every key that lies behind its query."),
    "HIDDEN_KEYS": (
        "what must be readable is hidden in {count} cells: first, query {query} cannot read key {key}; the consumer "
        "obeys {source}.",
        "Open these cells: a query reads its own segment and its ancestors up to itself."),
    "ROW_EMPTY": (
        "nothing may be read in {num_indexes} query rows (first: query {query}); with −inf such a row becomes NaN, "
        "with a finite fill value a mean over all keys.",
        "Let each row read at least itself, or declare these rows padding."),
    "ROW_EMPTY.padding": (
        "nothing may be read in {num_indexes} padding rows (first: query {query}); harmless as long as nobody uses "
        "their output and the fill value is finite.",
        ""),
    "ROW_EMPTY.kernel": (
        "nothing may be read by {num_indexes} queries before the first key of a bottom-right aligned kernel (first: "
        "query {query}); it writes zeros for them by design.",
        ""),
    "FORBIDDEN_CELL": (
        "a forbidden rectangle may be read in {count} cells: first, query {query} reads key {key}.",
        "Hide these cells; check whether the end of an interval was taken as inclusive."),
    "MASK_INVERTED": (
        "the mask is the exact opposite of what {consumer} expects ({reads}): what should be read is hidden and what "
        "should be hidden is read.",
        "Invert it once: `~mask` for booleans, or build it with the other convention."),
    "MASK_INVERTED.padding": (
        "the mask marks the padding with 1 and the tokens with 0; it is the opposite of a keep mask.",
        "Use {expected}."),
    "CAUSAL_MISSING": (
        "causality is wanted, but nothing hides later keys in {count} cells.",
        "Pass is_causal=True, or put the causal triangle into the mask."),
    "CAUSAL_MISSING.eager": (
        "causality is wanted, but this attention is given no mask, and no flag adds one: later keys are open in "
        "{count} cells.",
        "Build the causal mask and add it to the scores."),
    "CAUSAL_UNWANTED": (
        "the model is meant to read both ways, but later keys are hidden in {count} cells (source: {source}).",
        "Leave causality out: is_causal=False, and a mask without the triangle."),
    "CAUSAL_AND_MASK": (
        "{consumer} was given a mask and is_causal=True together; it refuses the pair or applies causality twice.",
        "Give one of the two: put the causal triangle into the mask, or drop the mask."),
    "ALIGN_TOP_LEFT": (
        "{queries} queries on {keys} keys are aligned to the top left, as if nothing were cached, which differs from "
        "the right set in {count} cells.",
        "Align to the bottom right: query i sits at key {keys} − {queries} + i; hand over an explicit mask, or a "
        "version that does this."),
    "WINDOW_IGNORED": (
        "the sliding window of {window} is not in the mask: keys further back are read in {count} cells, first query "
        "{query} on key {key}.",
        "Hide keys that lie {window} or more places before their query."),
    "WINDOW_IGNORED.partly": (
        "keys behind the sliding window of {window} are read in {count} cells: first, query {query} reads key {key}.",
        "Hide keys that lie {window} or more places before their query."),
    "WINDOW_OFF_BY_ONE": (
        "the mask has a window of {width} where the model has {window}, which differs in {count} cells, first query "
        "{query} and key {key}.",
        "A window of {window} is the query itself and {window} − 1 keys before it."),
    # the mask as an array
    "MASK_VALUES_AS_BIAS": (
        "the mask holds 0 and 1 as {dtype}, and {consumer} adds it to the scores: a hidden key only gets 1 less, "
        "nothing is hidden.",
        "Convert it: `mask.bool()` where booleans are taken, else 0 where allowed and torch.finfo(dtype).min where "
        "not."),
    "MASK_VALUES_AS_BIAS.bool": (
        "the mask is boolean, and transformers with attn_implementation={way} adds a 4-D mask as it is: true becomes "
        "+1, nothing is hidden.",
        "Convert it: 0 where allowed and torch.finfo(dtype).min where not, or use sdpa."),
    "MASK_DTYPE": ("the mask has dtype {found}, which {consumer} refuses.", "Convert it: mask.to(torch.{expected})."),
    "MASK_DTYPE.float": (
        "the mask has dtype {found} and the queries {expected}; fused kernels of {consumer} refuse the pair.",
        "Convert it: mask.to(torch.{expected}), or use a boolean mask."),
    "MASK_SHAPE": ("the mask has the shape {found}, but {consumer} needs {expected}.", "Bring it to {expected}."),
    "MASK_SHAPE.planes": ("the masks have the shapes {found}, which do not broadcast.", "Bring them to one shape."),
    "MASK_NAN": (
        "the mask is NaN in {count} cells; each spoils its whole row.",
        "Build the mask with where(); 0 × −inf is NaN."),
    "MASK_OVERFLOW": (
        "in {dtype} the sum of {num_planes} masks is infinite in {count} cells; a row of them only is NaN.",
        "Combine the masks as booleans and fill once, or clamp the sum to torch.finfo(dtype).min."),
    "MASK_SENTINEL_UNREPRESENTABLE": (
        "the fill value {found:g} does not fit {dtype} (largest {largest:g}) and becomes −inf.",
        "Use torch.finfo(dtype).min, or a boolean mask."),
    "MASK_SENTINEL_WEAK": (
        "the fill value {found:g} is so small that masked keys keep weight (above {limit:g}).",
        "Use torch.finfo(dtype).min, or a boolean mask."),
    "MASK_TOO_LARGE": (
        "a mask of the shape {shape} has {found} cells; 32-bit offsets end at {expected}.",
        "Describe the segments instead: cu_seqlens or a block mask computed on the fly."),
    "SIZE_OVERFLOW": (
        "{total} tokens × {width} numbers are {found} values; 32-bit offsets end at {expected}.",
        "Use 64-bit offsets, or split the row."),
    "SEGMENT_ID_MASK": (
        "the mask holds numbers up to {highest}, which look like segment numbers; a stock consumer reads every "
        "number but 0 as \"keep\" and takes the row for one segment.",
        "Use a consumer that knows segment numbers, or hand over positions, cu_seqlens or a block mask."),
    "SEGMENT_ID_MASK.flash": (
        "the mask holds numbers up to {highest}, which look like segment numbers; flash attention sums the mask to "
        "get lengths, so stock code counts too many tokens.",
        "Use a patched unpad step that knows segment numbers, or hand over restarted positions without a mask."),
    # sources and backends
    "BOUNDARY_CONFLICT.cu": (
        "{one} and {other} describe different segments (they differ in {cells} cells); obeyed is {obeyed}.",
        "Make both say the same borders, or drop the one that is wrong."),
    "BOUNDARY_CONFLICT.positions": (
        "{one} describe {segments} segments, {other} one (they differ in {cells} cells); obeyed is {obeyed}.",
        "Drop the all-ones mask, so that restarted positions are read, or hand over a block mask."),
    "BOUNDARY_CONFLICT.numbers": (
        "the segment numbers in {one} and {other} put borders at different places (first: {place}); obeyed is "
        "{obeyed}.",
        "Make both say the same borders."),
    "BOUNDARY_CONFLICT.eos": (
        "by {one} a segment starts at token {place}, but that token is the EOS that ends the text before it; obeyed is "
        "{obeyed}.",
        "Move these borders one token on, so that each EOS belongs to the text it ends."),
    "BOUNDARY_CONFLICT.inner": (
        "inside segment {segment} position {value} follows {before} at token {place}: whoever derives segments from "
        "positions cuts here.",
        "Count positions up by one inside a segment."),
    "BACKEND_IGNORES_MASK": (
        "{backend} takes no mask: what this one hides ({kind}) stays readable; only cu_seqlens and causality count.",
        "Say the borders with cu_seqlens, or use a backend that takes masks."),
    "BACKEND_NO_ARBITRARY_MASK": (
        "{backend} cannot execute an arbitrary mask of cells; it knows causal blocks of whole sequences only.",
        "Use sdpa or flex_attention, or say the borders with cu_seqlens or restarted positions."),
    "BACKEND_DTYPE": (
        "flash attention computes in float16 or bfloat16 on a GPU only; this batch has {dtype}.",
        "Convert the model to bfloat16 on a GPU, or use sdpa."),
    "BACKEND_DTYPE.device": ("flash attention runs on a GPU only; this batch is on {device}.", "Use sdpa here."),
    "NOT_PACKABLE": (
        "{kind} in {num_layers} layers carries a state along the row and looks at no mask: segments leak through it.",
        "Run one segment a row, or kernels that reset their state at cu_seqlens."),
    # positions
    "POS_NOT_RESET": (
        "segment {segment} starts at token {first} with position {value} where {right} is right.",
        "Restart positions at every segment: {expected}."),
    "POS_NOT_RESET.harmless": (
        "segment {segment} starts at token {first} with position {value} where {right} would be usual; harmless with "
        "RoPE under a right mask, because only distances count, until positions pass the context limit.",
        "Restarting positions keeps clear of the context limit: {expected}."),
    "POS_NOT_RESET.depends": (
        "segment {segment} starts at token {first} with position {value} where {right} is right; with RoPE "
        "(position_kind) this would be harmless under this mask, with absolute positions it is not.",
        "Restart positions at every segment: {expected}."),
    "POS_START": ("positions start at {first} where {right} is right.", "Use {expected}."),
    "POS_START.decode": (
        "row {row}: the first generated token gets position {first}, the prompt ends before {right}.",
        "Use {expected}."),
    "POS_FROZEN.prefill": (
        "positions stand still at {value} (tokens {indexes}): these tokens cannot be told apart by place.",
        "Use {expected}."),
    "POS_FROZEN.decode": (
        "row {row}: generated tokens do not move on from position {first}; the next right one is {right}.",
        "Count up by one a token: {expected}."),
    "POS_COUNTS_PADS.prefill": (
        "positions count padding between real tokens, so distances are wrong.",
        "Count only kept tokens: {expected}."),
    "POS_COUNTS_PADS.decode": (
        "row {row}: generated tokens are numbered from {first}, behind the padding; the prompt ends before {right}.",
        "Count only kept tokens: {expected}."),
    "POS_SHARED_ACROSS_ROWS.decode": (
        "all rows get position {first}, but they hold different numbers of tokens; row {row} is at {right}.",
        "Keep one position a row: {expected}."),
    "POS_LEFT_PAD.rope": (
        "positions of left-padded rows count the padding, a uniform shift; harmless with RoPE, because only "
        "distances count.",
        "To be exact, count only kept tokens: {expected}."),
    "POS_LEFT_PAD.depends": (
        "positions of left-padded rows count the padding, a uniform shift; it depends on position_kind: harmless "
        "with RoPE, an error with absolute positions.",
        "Count only kept tokens: {expected}."),
    "POS_LEFT_PAD.absolute": (
        "positions of left-padded rows count the padding; absolute embeddings of real tokens are shifted by it.",
        "Count only kept tokens: {expected}."),
    "POS_LENGTH": (
        "there are {found} positions for {expected} tokens.",
        "Build positions after padding, one a token."),
    "POS_RANK": (
        "positions have the shape {shape}: three axes, a batch, tokens; cu_seqlens run to {end}, so the axis of size "
        "3 was taken for the batch.",
        "Derive boundaries from one axis of the positions only."),
    "POS_RANK.axes": (
        "positions have the shape {shape}: three axes without a batch; their axis will be taken for the batch.",
        "Add the batch axis: [3, B, T]."),
    "POS_RANK.order": (
        "positions have the shape {shape}; the first of three axes must have size 3.",
        "Bring them to {expected}."),
    "PSEUDO_SEGMENTS": (
        "positions end in {length} zeros from token {tail} on: whoever derives segments from positions makes each a "
        "segment of one token.",
        "Number padding like a segment, or mask it."),
    "OK_CONTINUATION": ("positions go on at {past}, behind the cached tokens: one segment continues.", ""),
    # varlen
    "CU_NO_LEADING_ZERO": ("{key} starts with {first}; the first segment is lost.", "Put 0 in front: {expected}."),
    "CU_END": (
        "{key} ends at {last}, the row at {total}: the tail belongs to no segment and its output is never written.",
        "Let the last entry be {total}."),
    "CU_END.past": ("{key} ends at {last}, behind the row of {total} tokens.", "Let the last entry be {total}."),
    "CU_END.padding": (
        "{key} ends at {last}; the padding behind it is never written and may hold anything.",
        "Do not read the output of these rows, or give padding its own segment."),
    "CU_NEGATIVE": (
        "{key} falls from {before} to {value} at entry {place}: a segment of negative length.",
        "Boundaries must rise: {expected}."),
    "CU_ZERO_LENGTH": (
        "{key} repeats {value} at entry {place}: a segment without tokens.",
        "Drop the repeated entry: {expected}."),
    "CU_DTYPE": ("boundaries have dtype {found}; kernels read them as {expected}.", "Convert: cu.to(torch.int32)."),
    "CU_QK_MISMATCH": (
        "boundaries of queries and keys differ though both are the same tokens.",
        "Use one array for both: {expected}."),
    "CU_QK_MISMATCH.count": (
        "boundaries describe {num_q} segments of queries and {num_k} of keys.",
        "Give one entry a segment in both."),
    "CU_MAX_SEQLEN": (
        "max_seqlen is {found}, but the longest segment has {expected} tokens; the kernel stops early in it.",
        "Use {expected}."),
    # padding
    "PAD_SIDE": (
        "rows are padded on the right and then generated from: new tokens are put behind the padding.",
        "Set padding_side to \"left\"."),
    "PAD_IS_EOS": (
        "the pad id {pad} is also the end of text, and a mask made by comparing ids hides real ends of text at "
        "{indexes}.",
        "Keep the mask the tokenizer made: {expected}."),
    "PAD_IS_EOS.labels": (
        "the pad id {pad} is also the end of text, and labels ignore every real end of text (at {indexes}): the "
        "model never learns to stop.",
        "Mask labels by position, not by id: {expected}."),
    "PAD_MASK_MISSING": (
        "the row holds padding ({pad} on the {side}) but there is no mask: padding is read like text.",
        "Pass attention_mask = {expected}."),
    "PAD_MASK_MISSING.ones": ("the mask keeps padding ({pad}) at {indexes}.", "Pass attention_mask = {expected}."),
    "READ_INDEX": ("logits are read at {found}, the last real token stands at {expected}.", "Read column {expected}."),
    "LAST_TOKEN": (
        "the pooled column is {found}, the last real token stands at {expected}.",
        "Pool column {expected}."),
    # tokens
    "BOS_DOUBLE": ("BOS ({bos}) stands twice at {indexes}.", "Tokenize with add_special_tokens=False."),
    "BOS_DOUBLE.text": (
        "the text starts with BOS and the tokenizer adds one.",
        "Tokenize with add_special_tokens=False."),
    "BOS_MISSING": ("no BOS ({bos}) at segment start {indexes}.", "Add BOS where each text starts."),
    "BOS_MISSING.text": (
        "neither the text nor the tokenizer writes BOS, though the model has one.",
        "Let one of the two write it."),
    "BOS_MID": (
        "BOS ({bos}) stands inside a segment at {indexes}.",
        "Add BOS once a segment, not once a message; or name the borders, if a segment starts here."),
    "PATHS_DISAGREE": (
        "{one!r} and {other!r} give different ids from place {place} on.",
        "Tokenize by one path everywhere."),
    "BOUNDARY_MERGE": (
        "the prompt's ids are no prefix of the whole: they differ from place {place} on, a token grew over the "
        "border.",
        "Tokenize prompt and answer apart and join the ids, or mask by character offsets."),
    "TEMPLATE_TOKENIZER_MISMATCH": (
        "the template writes {text!r}, which this tokenizer splits into {found} tokens.",
        "Use the template that belongs to this tokenizer, or add the marker as a special token."),
    "SPECIAL_SPLIT": ("the special token {text!r} is encoded as {found} tokens.", "Register it as a special token."),
    "SPLIT_CHARACTER": (
        "the border at token {place} cuts a character: bytes {left} | {right}.",
        "Move the border to a whole character."),
    "LENGTH_MISMATCH": (
        "{key} has {found} entries where the row has {expected}.",
        "Build it after truncation and padding."),
    "LENGTH_MISMATCH.rows": ("{key} has {found} rows, the batch {expected}.", "Give one row each."),
    # labels
    "SPAN_OFF_BY_ONE": (
        "labels are off by one against the span: {num_trained} tokens are trained, {num_wanted} should be (first "
        "difference at {place}).",
        "Use labels = {expected}."),
    "SPAN_OFF_BY_ONE.shift": (
        "labels are shifted by one against the ids; labels_shifted says otherwise, so they are shifted twice or not "
        "at all.",
        "Shift once: say labels_shifted, or hand over labels that stand at their token."),
    "SPAN_OFF_BY_ONE.segment": (
        "span {name!r} is {found}, one place beside the segment {expected}.",
        "Use {expected}."),
    "SPAN_OVERRUN": (
        "labels and span disagree by more than an edge: {num_trained} tokens are trained, {num_wanted} should be "
        "(first difference at {place}).",
        "Use labels = {expected}."),
    "SPAN_OVERRUN.row": ("span {name!r} ends at {end}, the row at {total}.", "Locate it again after truncation."),
    "SPAN_OVERRUN.border": (
        "span {name!r} {found} runs over the border of its segment at {border}.",
        "End it where the segment ends."),
    "SPAN_UNKNOWN": (
        "span {name!r} could not be located.",
        "Find it by token offsets; a search that finds nothing must stop the run."),
    "LABEL_CROSSES_BOUNDARY": (
        "the last token of a segment (at {indexes}) is trained to predict a token of the next.",
        "Set these labels to -100: {expected}."),
    "LABEL_CROSSES_BOUNDARY.unshifted": (
        "the first token of a segment (at {indexes}) keeps its label; the model shifts labels itself, so the segment "
        "before is trained to predict it.",
        "Set these labels to -100: {expected}."),
    "LABEL_CROSSES_BOUNDARY.rolled": (
        "labels are the ids rolled round: the last token is trained to predict the first.",
        "Set the last label to -100: {expected}."),
    # heads and adapters
    "GQA_SHAPE": (
        "{heads} query heads and {kv_heads} key/value heads are handed to {consumer} as they are; it needs equal "
        "numbers.",
        "Pass enable_gqa=True, or repeat keys and values."),
    "GQA_SHAPE.divide": ("{heads} query heads cannot share {kv_heads} key/value heads evenly.", "Check the config."),
    "GQA_SHAPE.map": ("head_map has {found} entries for {expected} query heads.", "Give one entry a query head."),
    "GQA_ORDER": (
        "query heads read the wrong key/value heads: keys were tiled where each must be repeated.",
        "Use repeat_interleave: {expected}."),
    "ADAPTER_SCALE": (
        "the adapter is scaled by {found:g}; {formula} with alpha {alpha:g}, r {r} and weight {weight:g} is "
        "{expected:g}.",
        "Scale by {expected:g}."),
    "ADAPTER_ALPHA_MISSING": (
        "lora_alpha is not given (r = {r}), so the scaling {given} is a guess.",
        "Read lora_alpha from the adapter's config."),
    "ADAPTER_NOTHING_MATCHED": (
        "no module of the model matches the adapter's keys: it changes nothing.",
        "Compare the prefixes of the adapter's keys with the model's module names."),
    "ADAPTER_NO_EFFECT": (
        "B is all zeros: the adapter is loaded and changes nothing.",
        "Train it, or check that the right file was loaded."),
    "ADAPTER_NO_EFFECT.alpha": (
        "lora_alpha is 0, so the scale is 0: the adapter is loaded and changes nothing.",
        "Read lora_alpha from the adapter's config."),
    "ADAPTER_UNKNOWN": ("adapter {found!r} is not loaded; loaded are {loaded}.", "Correct the name."),
    "ADAPTER_COUNT": (
        "{found} adapter names for {expected} rows.",
        "Repeat the names as the rows are repeated (beams, samples)."),
    "ADAPTER_MISROUTED": (
        "the adapter is wrong for {num_indexes} tokens: first, token {token} of segment {segment} goes through "
        "{used!r} where {meant!r} is right.",
        "Build the adapter of each token from its segment: {expected}."),
    # what had to be assumed
    "assumed.mask_keep": ("mask read as 0/1 keep (1 = may attend)", ""),
    "assumed.mask_added": ("mask read as added to the scores", ""),
    "assumed.mask_block": ("mask read as true = hidden", ""),
    "assumed.mask_depends": (
        "mask of 0 and 1 as floats read as keep; if the consumer adds it to the scores, it hides nothing: depends on "
        "consumer",
        ""),
    "assumed.mask_square": ("two-dimensional mask read as [query, key]", ""),
    "assumed.mask_rows": ("two-dimensional mask read as [row, token]", ""),
    "assumed.mask_row_consumer": (
        "one number a token handed to {consumer}: who reads whom depends on how it is broadcast, so cells were not "
        "judged",
        ""),
    "assumed.no_consumer": ("no consumer named: who reads whom depends on it, so cells were not judged", ""),
    "assumed.hf": ("no consumer named: a transformers forward assumed", ""),
    "assumed.causal_model": ("the transformers model is causal (is_causal was not said)", ""),
    "assumed.no_mask_consumer": ("no mask and no flag for {consumer}: cells were not judged", ""),
    "assumed.segments": ("segments taken from {source}, because none were given", ""),
    "assumed.one_segment": ("the row is one segment, because nothing describes more", ""),
    "assumed.tail": ("tokens from {end} on belong to no segment: taken for padding", ""),
    "assumed.rows": (
        "segments describe one packed row; the batch has {rows} rows that are no longer than it, so they were not "
        "judged against it",
        ""),
    "assumed.version": ("the newest transformers assumed, which reads packing from restarted positions", ""),
    "assumed.window_model": ("the consumer applies the window of {window} itself", ""),
    "assumed.too_ragged": ("the mask has too many holes to judge cell by cell", ""),
    "assumed.too_long": ("{cells} cells are too many to judge", ""),
    "assumed.position_kind": ("position_kind is not said: whether shifted positions matter depends on it", ""),
    "assumed.eos": ("a text may start behind an EOS inside the row; whether that is a border depends on lengths", ""),
    "assumed.labels_end": (
        "the last label predicts a token behind the row; whether it is right depends on lengths",
        ""),
    "assumed.gqa": ("keys and values are repeated before {consumer} sees them (enable_gqa was not said)", ""),
}
