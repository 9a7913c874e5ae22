"""One run of a peer within namespaces of its own, as a program: `python -m tests.chaos.peers.one PEER FOLDER`.

Carries out FOLDER/order.json and leaves result.json there; ends with 0 if the harness itself did not fail, 2 if it cannot be
run here.
"""

import json
import sys
from pathlib import Path

import click

from tests.chaos import apart
from tests.chaos.faults.catalogue import CATALOGUE
from tests.chaos.order import Order, choose
from tests.chaos.peers.catalogue import PEERS
from tests.chaos.peers.run import PeerBounds, run_peer
from tests.chaos.peers.world import PeerWorld
from tests.chaos.schedule import draw
from tests.chaos.tools import machine_features


@click.command()
@click.argument("name", type=click.Choice(list(PEERS)))
@click.argument("folder", type=click.Path(exists=True, path_type=Path))
@click.option("--unpacked", type=click.Path(path_type=Path), required=True)
@click.option("--calm", type=float, required=True)
def main(name: str, folder: Path, unpacked: Path, calm: float) -> None:
    """Throw the strokes of FOLDER/order.json at a peer."""
    try:
        apart.enter("tests.chaos.peers.one", sys.argv[1:])
    except PermissionError as error:
        click.echo(str(error), err=True)
        sys.exit(2)
    peer = PEERS[name]
    installed = peer.find(unpacked)
    if installed is None:
        click.echo(peer.missing(unpacked), err=True)
        sys.exit(2)
    order = Order.read(folder / "order.json")
    features = order.shape.features | machine_features()
    every = [one.kind for one in CATALOGUE.values()]
    kinds, left_out = choose(every, order.wanted, features, destroy=False)
    for sentence in left_out:
        click.echo(f"left out: {sentence}")
    result = run_peer(
        folder,
        order,
        draw(order.shape.seed, kinds),
        PeerWorld(peer, installed),
        PeerBounds(calm=calm),
    )
    (folder / "result.json").write_text(json.dumps(result.as_json()), "utf-8")


if __name__ == "__main__":
    main()
