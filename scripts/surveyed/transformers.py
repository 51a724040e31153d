"""The base models of transformers that take a mask over tokens or frames."""

import inspect

import transformers
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_MAPPING_NAMES,
)

from normlab.any_model.loading.tiny import AUDIO, MASKS, tiny_model
from surveyed import Subject

SPEECH_HEADS = ("SeamlessM4TForSpeechToText", "SeamlessM4Tv2ForSpeechToText")
KIND = (
    "base models that take a mask over tokens or frames, with four rows of different lengths "
    "**and their mask**. A class with a head, such as BertForMaskedLM, contains its base model "
    "and is not listed. Some classes accept a mask but ignore it by design (Whisper)"
)
CHECKED = """\
- `Aimv2Model` and `PaliGemmaModel`: correct. With `sdpa`, a row without padding has a different
  output alone than in a batch with padded rows; with `eager` attention the output is the same. If
  no row is padded, `sdpa` gets no mask and also attends to later tokens (as in
  huggingface/transformers#48770).
- `GraniteSpeechModel`, `GraniteSpeechPlusModel`: the batch has no sound, so their batch norms
  never ran.
- Correct, and each also seen in two plain passes (one row alone, and with padding and its mask,
  with the same weights; the output at real tokens): `CanineModel` 36 %, `FunnelModel` 20 %,
  pooled over the padding, `Dots3NoteTextModel` 19 % with 32 positions of padding and 0 with 16,
  `Speech2TextModel` (encoder) 7 %, `YosoModel` 1 %, `ConvBertModel` 0.2 %, `NystromformerModel`
  0.1 %: their convolutions and pooled queries include padding. `SiglipModel` 48 %: its text is
  pooled at the last position, so all texts must have the same length, as in training.
  `UnivNetModel` 0.2 %: it draws noise in each pass.
- Later tokens change the output of the models under "future", which see both sides by design. If
  transformers has a masked but no causal language model of a kind, the survey says so.
- `Nemotron3DiarizationModel`, `Nemotron3DiarizationAudioModel` and
  `Nemotron3_5TranscribeAsrAudioModel` were wrongly reported when padded on the left by one frame,
  which shifts the groups of eight frames that they stack. normlab no longer pads such models
  there.
- `GraniteSpeech5Encoder` and `GraniteSpeech5ForCTC` were wrongly reported for stale statistics:
  their variances are below eps, which normlab now adds to both variances. Padding on the left,
  which they do not support, is no longer tried, nor is it for `Tipsv2TextModel`.
- `BridgeTowerModel` was wrongly reported as seeing later tokens: only its cross-attention says
  that it is causal. normlab now asks the module at fault."""

transformers.logging.set_verbosity_error()


def classes() -> list[str]:
    """Return the names of the classes, audio models first."""
    found = {}
    for named in (*MODEL_MAPPING_NAMES.values(), *SPEECH_HEADS):
        for name in [named] if isinstance(named, str) else named:
            try:
                cls = getattr(transformers, name)
                names = inspect.signature(cls.forward).parameters
            except (AttributeError, ImportError):
                continue
            takes = {"input_ids", *AUDIO} & set(names)
            if takes and set(MASKS) & set(names) and cls.main_input_name != "pixel_values":
                found[name] = not takes & set(AUDIO)
    return sorted(found, key=lambda name: (found[name], name))


def subject(name: str) -> Subject:
    """Return a small model of a class and inputs. Raise UserError if no config or input fits."""
    model, batch = tiny_model(name)
    mask = next(key for key in batch if key in MASKS)
    arguments = {"mask": mask, "max_positions": batch[mask].shape[1]}
    kind = model.config.model_type
    if kind in MODEL_FOR_MASKED_LM_MAPPING_NAMES and kind not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        arguments["causal"] = False
    return Subject(model, [batch], arguments)
