"""What Hydra reads: the schema, and the folders with options."""

import pickle

from hydra.core.config_store import ConfigStore

from normlab.config.compose import register


def test_launchers_can_send_what_is_registered_to_another_process():
    """Hydra's launchers pickle the whole store, with the classes of the schema, for each job."""
    register()
    store = ConfigStore.instance().repo
    sent = pickle.loads(pickle.dumps(store))
    assert sent["normlab_schema.yaml"].node == store["normlab_schema.yaml"].node
