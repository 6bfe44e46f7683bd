"""Connects the ranks of Horovod on this machine through gloo.

Users call `horovodrun` instead. The rendezvous server of `horovodrun` accepts connections from all
networks. The rendezvous server of this module is bound to the loopback address.
"""

import contextlib
import os
import threading

from legacy_opt import compat


@contextlib.contextmanager
def rendezvous():
    """Runs the server through which the ranks find each other, and yields its port."""
    from horovod.runner.http import http_server

    server = http_server.RendezvousHTTPServer(
        ("127.0.0.1", 0), http_server.RendezvousHandler, verbose=0
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def join(port, rank, size):
    """Makes this process a rank of Horovod, and returns the module `horovod.tensorflow`."""
    place = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size}
    place.update(CROSS_RANK=0, CROSS_SIZE=1, HOSTNAME="localhost")
    place.update(CONTROLLER="gloo", CPU_OPERATIONS="gloo", GLOO_IFACE="lo")
    place.update(GLOO_RENDEZVOUS_ADDR="127.0.0.1", GLOO_RENDEZVOUS_PORT=port)
    os.environ.update({f"HOROVOD_{name}": str(value) for name, value in place.items()})
    # Horovod defines BroadcastGlobalVariablesHook only if it finds tf.estimator. TensorFlow 2.16
    # removed tf.estimator, and patch_tensorflow adds it.
    with compat.patch_tensorflow():
        import horovod.tensorflow as hvd

    hvd.init()
    return hvd
