"""A model of another kind for the same tables: a residual graph convolutional network.

    grand train cora-embedded --plugin examples/extending/model.py --model example

It knows nothing of members or keys and takes its dropout from torch: the harness runs it member by member,
each with a generator of its own.
"""

from torch import nn
from torch.nn.functional import dropout, relu
from torch_geometric.nn import GCNConv

from graphdiffusion.nn import MODELS, Model, Output


@MODELS.register("example")
class ResidualGCN(Model):
    """Convolutions that add to what they are given, between two linear layers.

    Args:
        in_channels: Width of the features.
        out_channels: Number of classes.
        hidden: Width of the hidden layers.
        layers: Number of convolutions.
        dropout: Dropout before every layer.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        *,
        hidden: int = 64,
        layers: int = 4,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.encoder = nn.Linear(in_channels, hidden)
        # the graph comes with its self-loops
        self.layers = nn.ModuleList(GCNConv(hidden, hidden, add_self_loops=False) for _ in range(layers))
        self.decoder = nn.Linear(hidden, out_channels)

    def run(self, x, graph, **more) -> Output:
        x = relu(self.encoder(dropout(x, self.dropout, self.training)))
        for layer in self.layers:
            x = x + relu(layer(dropout(x, self.dropout, self.training), graph.edge_index, graph.weight))
        return Output(self.decoder(dropout(x, self.dropout, self.training)))
