"""The sizes and tasks of a card's runs at each scale."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CardScale:
    """The sizes of a card's runs.

    Attributes:
        steps: number of updates in a short run; `image_steps` for images.
        rate_steps: number of updates in the trial of a learning rate.
        most_rates: the largest number of such trials.
        depth: number of layers per stack in the deep model.
        rounds: number of rounds of timing.
        text, images, translation, rate: config overrides for runs on text, on images, for
            translation, and for trials of learning rates.
    """

    seeds: tuple[int, ...] = (1,)
    steps: int = 6
    image_seeds: tuple[int, ...] = (1,)
    image_steps: int = 6
    rate_steps: int = 4
    most_rates: int = 2
    depth: int = 3
    rounds: int = 2
    text: tuple[str, ...] = ()
    images: tuple[str, ...] = ("model.width=8", "batch_size=32")
    translation: tuple[str, ...] = ()
    rate: tuple[str, ...] = ()


SCALES = {
    "smoke": CardScale(
        text=("model.dim=32", "model.ffn_dim=64", "batch_size=8", "task.vocab_size=400"),
        translation=(
            *("task.corpus.size=300", "task.corpus.valid_size=16", "task.corpus.test_size=16"),
            "task.max_length=256",
        ),
    ),
    "small": CardScale(
        seeds=(1, 2),
        steps=600,
        image_seeds=(1, 2, 3, 4, 5),
        image_steps=60,  # after 600 steps all norms score the same, even `none`
        rate_steps=100,
        most_rates=9,
        depth=12,
        rounds=7,
        text=("model.dim=128", "model.ffn_dim=512", "batch_size=32", "task.vocab_size=1000"),
        images=("model.width=16", "batch_size=64"),
        translation=("task.corpus.valid_size=200", "task.corpus.test_size=200"),
        rate=("task.corpus.valid_size=50", "task.corpus.test_size=50"),
    ),
}
NO_TESTS = ("task.test_batch_sizes=[]", "task.test_eval_stats=[]")
TASKS = {
    "translation": (
        *("task=toy", "model=tiny", "task.valid_search.length_offset=10"),
        *("task.test_search.beam=1", "task.test_search.length_offset=10"),
    ),
    "language_model": ("task=lm", "task.max_length=64", "task.one_by_one=0"),
    "bert": ("task=mlm", "task.max_length=64"),
    "images": ("task=digits", "model=resnet8", *NO_TESTS),
}
