"""The base models of transformers that take a mask over tokens or frames."""

import inspect

import transformers
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

from normlab.any_model.tiny import AUDIO, MASKS, made
from surveyed import Subject

SPEECH_HEADS = ("SeamlessM4TForSpeechToText", "SeamlessM4Tv2ForSpeechToText")
KIND = (
    "base models that take a mask over tokens or frames, with four rows of unequal length **and "
    "their mask**. A class with a head, such as BertForMaskedLM, contains its base model and is "
    "not listed. Some classes accept a mask but ignore it by design (Whisper)"
)

transformers.logging.set_verbosity_error()


def classes() -> list[str]:
    """Return the names of the classes, those of audio first."""
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
    """Return a small model of a class and inputs; UserError if no config or input fits."""
    model, batch = made(name)
    mask = next(key for key in batch if key in MASKS)
    return Subject(model, [batch], {"mask": mask, "max_positions": batch[mask].shape[1]})
