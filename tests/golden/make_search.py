#!/usr/bin/env python3
"""Makes search.json: outputs of transformers' `generate` where the next token depends on the last one and its position, and
of the MarianMT in hugging_face/.

Usage: python make_search.py
Needs transformers.
"""

import itertools
import json
import pathlib

import torch
import transformers
from transformers.modeling_outputs import CausalLMOutput

FOLDER = pathlib.Path(__file__).parent
VOCABULARY, END, PADDING = 12, 0, 11


class Table(transformers.PreTrainedModel, transformers.GenerationMixin):
    """Logits of the next token by the last one plus its position; a text starts from padding."""

    config_class = transformers.PretrainedConfig
    main_input_name = "input_ids"

    def __init__(self, logits):
        super().__init__(transformers.PretrainedConfig(vocab_size=VOCABULARY, eos_token_id=END, pad_token_id=PADDING))
        self.logits = torch.nn.Parameter(logits)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **_):
        places = torch.arange(input_ids.shape[1])
        return CausalLMOutput(logits=self.logits[(input_ids + places) % VOCABULARY])

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


def translated(folder, random):
    """Random sources, without their end, and the outputs of a model that tends to end early, greedy and with four beams."""
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float64).eval()
    model.final_logits_bias[0, END] += 2.3
    padding = model.config.pad_token_id
    cases = []
    for _ in range(50):
        source = torch.randint(1, padding, (int(torch.randint(1, 9, (), generator=random)),), generator=random).tolist()
        outputs = []
        for beams in (1, 4):
            found = model.generate(torch.tensor([[*source, END]]), num_beams=beams, max_length=12, length_penalty=1.0 if beams > 1 else None, forced_eos_token_id=END,
                                   bad_words_ids=[[padding]], decoder_start_token_id=padding)[0, 1:].tolist()
            outputs.append(found[: found.index(END)])
        cases.append([source, *outputs])
    return cases


def main():
    transformers.utils.logging.set_verbosity_error()
    random = torch.Generator().manual_seed(1)
    settings = list(itertools.product((1, 2, 4), (True, False, "never"), (-0.5, 0.0, 1.0, 1.7), (True, False)))
    tables = torch.randint(-999, 1000, (7, VOCABULARY, VOCABULARY), generator=random)
    tables[:, :, END] += torch.tensor([-300, 0, 400, 100, 200, 0, 500])[:, None]
    cases = []
    for number, (beams, early, penalty, forced) in enumerate(settings):
        table = tables[number % 7]
        length = 4 + number % 9
        found = Table(table.double() / 400).generate(
            torch.tensor([[PADDING]]), attention_mask=torch.ones(1, 1), num_beams=beams, early_stopping=early if beams > 1 else None,
            length_penalty=penalty if beams > 1 else None, max_length=length, forced_eos_token_id=END if forced else None,
            bad_words_ids=[[PADDING], [5]], renormalize_logits=number % 5 == 0, use_cache=False, do_sample=False, num_return_sequences=beams, return_dict_in_generate=True,
            output_scores=True)
        outputs = []
        for row in found.sequences[:, 1:].tolist():
            row = row[: row.index(END)] if END in row else [id for id in row if id != PADDING]
            outputs.append(row)
        scores = found.sequences_scores.tolist() if beams > 1 else []
        cases.append([number % 7, beams, str(early).lower(), penalty, forced, length, outputs, [round(score, 5) for score in scores], number % 5 == 0])
    value = {"tables": tables.flatten(1).tolist(), "cases": cases, "marian": translated(FOLDER / "hugging_face" / "marian", random)}
    (FOLDER / "search.json").write_text(json.dumps(value, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
