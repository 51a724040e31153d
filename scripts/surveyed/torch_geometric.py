"""Layers, norms, aggregations and models of PyG, on batches of four graphs."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn

from normlab.errors import UserError
from surveyed import Subject

KIND = (
    "layers, norms, aggregations and models, each on a batch of four graphs of ten nodes that "
    "is flattened as a `DataLoader` does, with the vector `batch`. The question is whether a "
    "graph's output depends on the other graphs"
)
CHECKED = """\
- `PMLP`: correct, and intended: its norm keeps no running statistics, so in evaluation a graph's
  output depends on the other graphs.
- `EquilibriumAggregation`: correct: its regularizer is a mean over graphs, so the steps of its
  inner optimization depend on how many graphs there are.
- `LayerNorm` has the mode `graph` by default, in which it pools over nodes, too."""
WIDTH, NODES = 8, 10
HOMES = (pyg.conv, pyg.norm, pyg.aggr, pyg.models)


def classes() -> list[str]:
    """Return the names of all modules."""
    found = {
        name
        for home in HOMES
        for name in dir(home)
        if inspect.isclass(cls := getattr(home, name)) and issubclass(cls, nn.Module)
    }
    return sorted(found)


class Graphs(nn.Module):
    """A module of PyG on graphs of the same size, `[graph, node, feature]`.

    The edges of each graph are two rings, with steps of one and of three nodes.
    """

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Any:
        graphs, nodes, _ = x.shape
        near = torch.arange(nodes)
        ring = torch.stack([near.repeat(2), torch.cat([(near + 1) % nodes, (near + 3) % nodes])])
        ring = torch.cat([ring, ring.flip(0)], 1)
        offsets = torch.arange(graphs) * nodes
        edges = (ring[:, None] + offsets[None, :, None]).flatten(1)
        flat, batch = x.flatten(0, 1), torch.arange(graphs).repeat_interleave(nodes)
        output = call(self.inner, flat, edges, batch)
        output = output[0] if isinstance(output, tuple) else output
        for size in (graphs * nodes, edges.shape[1]):
            if len(output) == size:
                return output.unflatten(0, (graphs, -1))
        return output


def call(module: nn.Module, x: Tensor, edges: Tensor, batch: Tensor) -> Any:
    """Call a module with the inputs that its forward function accepts."""
    count, n = edges.shape[1], x.shape[0]
    places = x[:, :3] if x.shape[1] >= 3 else x
    weight = (x[edges[0], 0] * x[edges[1], 0]).sigmoid()
    values = {
        **{"x": x, "h": x, "x_0": x, "query": x, "inputs": x, "src": x, "z": places[:, 0].abs()},
        **{"edge_index": edges, "hyperedge_index": edges, "pos_edge_index": edges},
        **{"neg_edge_index": edges.flip(0), "batch": batch, "index": batch, "pos": places},
        **{"edge_weight": weight, "edge_attr": weight[:, None].expand(-1, 3), "normal": places},
        **{"edge_type": torch.arange(count) % 2, "node_type": torch.zeros(n, dtype=torch.long)},
        **{
            "input": x,
            "to": None,
            "msg": x.flip(1),
            "type_vec": torch.zeros(n, dtype=torch.long),
        },
    }
    values["z"] = torch.ones(n, dtype=torch.long)
    values["edge_attr"] = values["edge_attr"].to(x.dtype)
    if type(module).__name__ in ("CGConv", "SplineConv", "GMMConv", "MeshCNNConv"):
        values["edge_attr"] = weight[:, None]
    if isinstance(module, pyg.FAConv):  # it computes edge weights itself
        values.pop("edge_weight")
    takes = inspect.signature(module.forward).parameters
    return module(**{k: values[k] for k in takes if k in values})


def sizes(first: int = WIDTH) -> nn.Module:
    """Return a perceptron whose output is as wide as the features of a node."""
    return nn.Sequential(nn.Linear(first, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))


INNER: dict[str, Callable[[], dict[str, Any]]] = {
    "GINConv": lambda: {"nn": sizes()},
    "GINEConv": lambda: {"nn": sizes(), "edge_dim": 3},
    "EdgeConv": lambda: {"nn": sizes(2 * WIDTH)},
    "DynamicEdgeConv": lambda: {"nn": sizes(2 * WIDTH), "k": 3},
    "NNConv": lambda: {"nn": nn.Linear(3, WIDTH * WIDTH)},
    "ECConv": lambda: {"nn": nn.Linear(3, WIDTH * WIDTH)},
    "FiLMConv": lambda: {"num_relations": 1},
    "AntiSymmetricConv": lambda: {},
    "DirGNNConv": lambda: {"conv": pyg.SAGEConv(WIDTH, WIDTH)},
    "GPSConv": lambda: {"conv": pyg.SAGEConv(WIDTH, WIDTH)},
    "GATConv": lambda: {"edge_dim": 3},
    "GATv2Conv": lambda: {"edge_dim": 3},
    "TransformerConv": lambda: {"edge_dim": 3},
    "PNAConv": lambda: {"edge_dim": 3},
    "PDNConv": lambda: {"edge_dim": 3},
    "GeneralConv": lambda: {"in_edge_channels": 3},
    "ResGatedGraphConv": lambda: {"edge_dim": 3},
    "RGATConv": lambda: {"edge_dim": 3},
    "GENConv": lambda: {"edge_dim": 3},
    "PointGNNConv": lambda: {
        **{"mlp_h": nn.Linear(WIDTH, 3), "mlp_f": sizes(WIDTH + 3), "mlp_g": sizes()},
    },
    "MLPAggregation": lambda: {"num_layers": 2, "hidden_channels": WIDTH},
    "QuantileAggregation": lambda: {"q": 0.5},
    "DegreeScalerAggregation": lambda: {"scaler": "attenuation"},
    "PatchTransformerAggregation": lambda: {"patch_size": 2},
    "HeteroBatchNorm": lambda: {"num_types": 1},
    "HeteroLayerNorm": lambda: {"num_types": 1},
    "SignedConv": lambda: {"first_aggr": True},
    "EquilibriumAggregation": lambda: {"num_layers": [WIDTH]},
    "PPFConv": lambda: {"local_nn": sizes(WIDTH + 4), "global_nn": sizes()},
    "PointNetConv": lambda: {"local_nn": sizes(WIDTH + 3), "global_nn": sizes()},
    "MeshCNNConv": lambda: {},
    "XConv": lambda: {"dim": 3, "kernel_size": 3},
    "SplineConv": lambda: {"dim": 1, "kernel_size": 3},
    "GMMConv": lambda: {"dim": 1, "kernel_size": 3},
    "CGConv": lambda: {"dim": 1},
    "HEATConv": lambda: {"edge_dim": 3, "num_edge_types": 2},
    "SimpleConv": lambda: {"aggr": "mean"},
    "PANConv": lambda: {"filter_size": 2},
    "SetTransformerAggregation": lambda: {"channels": WIDTH},
    "GraphUNet": lambda: {"depth": 2},
    "PowerMeanAggregation": lambda: {"learn": True, "channels": WIDTH},
    "SoftmaxAggregation": lambda: {"learn": True, "channels": WIDTH},
    "PNA": lambda: {k: NAMED[k] for k in ("aggregators", "scalers", "deg", "edge_dim")},
    "MLP": lambda: {"channel_list": [WIDTH, WIDTH, WIDTH]},
    "AttentiveFP": lambda: {"edge_dim": 3, "num_timesteps": 2},
    "AttentionalAggregation": lambda: {"gate_nn": nn.Linear(WIDTH, 1)},
    "ResNetPotential": lambda: {"num_layers": [2]},
}
NAMED: dict[str, Any] = {
    **{"in_channels": WIDTH, "out_channels": WIDTH, "hidden_channels": WIDTH, "channels": WIDTH},
    **{"heads": 2, "num_heads": 2, "K": 2, "num_layers": 2, "num_relations": 2, "num_nodes": NODES},
    **{"dim": WIDTH, "edge_dim": 3, "num_classes": WIDTH, "alpha": 0.1, "processing_steps": 2},
    **{
        "aggregators": ["mean", "max"],
        "scalers": ["identity"],
        "deg": torch.tensor([0, 0, 0, 0, 9]),
    },
    **{"space_dimensions": 2, "propagate_dimensions": WIDTH, "k": 3, "num_node_types": 1},
    **{"edge_type_emb_dim": 4, "edge_attr_emb_dim": 4, "num_edge_types": 2, "eps": 1e-5},
    **{"num_groups": 2, "groups": 2, "batch_size": 4, "attn_channels": WIDTH, "t": 1.0, "p": 2.0},
    **{"num_blocks": 1, "num_seed_points": 1, "max_num_elements": NODES, "num_inducing_points": 2},
    **{"num_encoder_blocks": 1, "num_decoder_blocks": 1, "ratio": 0.8, "num_embeddings": 4},
    **{"aggrs": ["mean", "max"], "aggr": "mean", "dropout": 0.0},
}
NOT_GIVEN = {
    *("alpha", "dim", "eps", "dropout", "aggr", "K", "num_blocks", "edge_dim", "num_relations"),
    *("heads", "groups", "t", "p"),
}


def subject(name: str) -> Subject:
    """Return a module with four graphs as input."""
    cls = next(getattr(home, name) for home in HOMES if hasattr(home, name))
    torch.manual_seed(0)
    known, chosen = INNER.get(name, dict)(), {}
    for key, each in inspect.signature(cls.__init__).parameters.items():
        required = (
            each.default is inspect.Parameter.empty and each.kind is each.POSITIONAL_OR_KEYWORD
        )
        if key in known:
            chosen[key] = known[key]
        elif key in NAMED and (required or key not in NOT_GIVEN):
            chosen[key] = NAMED[key]
        elif required and key != "self":
            raise UserError(f"no value for the argument {key}")
    chosen |= known  # arguments that a class passes on as keywords
    if name in ("SGConv", "SSGConv", "DNAConv", "MixHopConv"):
        chosen.pop("groups", None)
    module = cls(**chosen).eval()
    x = torch.randn(4, NODES, WIDTH)
    model = Graphs(module)
    with torch.no_grad():
        output = model(x)
    if not torch.is_tensor(output) or len(output) != 4:
        raise UserError("its output is not one per graph, node or edge")
    return Subject(model.eval(), [x], {"causal": False})
