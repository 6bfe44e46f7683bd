"""Parameter servers and workers as tf.train.Servers in this process, connected by gRPC.

Real clusters have one process for each server, but a process takes seconds to start. The servers of
this module start in milliseconds, transfer tensors in the same way, and end with this process.
"""

import sys

import tensorflow as tf

from tests.support.paths import EXAMPLES

sys.path.insert(0, str(EXAMPLES))

from flights.processes import free_addresses

v1 = tf.compat.v1
SECONDS = 60  # the timeout of one Session.run


class LocalCluster:
    """A cluster of servers in this process.

    Args:
      ps: the number of parameter servers.
      worker: the number of workers.
    """

    def __init__(self, ps=2, worker=2):
        self.addresses = {"ps": free_addresses(ps), "worker": free_addresses(worker)}
        self.servers = {
            (job, index): v1.train.Server(self.addresses, job_name=job, task_index=index)
            for job, addresses in self.addresses.items()
            for index in range(len(addresses))
        }

    def session(self, worker=0):
        """Returns a Session of the default graph, with a worker as its master."""
        return v1.Session(self.servers["worker", worker].target, config=limited())

    def session_of_server(self, index):
        """Returns a Session of the default graph that can use only one parameter server."""
        config = limited(device_filters=[f"/job:ps/task:{index}"])
        return v1.Session(self.servers["ps", index].target, config=config)

    def placing(self, worker=0):
        """Returns a worker's device scope, which distributes variables over parameter servers."""
        return v1.device(
            v1.train.replica_device_setter(
                cluster=self.addresses, worker_device=f"/job:worker/task:{worker}"
            )
        )


def limited(**options):
    """Returns a ConfigProto in which each Session.run has the timeout `SECONDS`."""
    return v1.ConfigProto(operation_timeout_in_ms=1000 * SECONDS, **options)


def bytes_between_servers(session, fetches):
    """Runs `fetches` once with tracing; returns how many bytes the servers sent to each other."""
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    metadata = v1.RunMetadata()
    session.run(fetches, options=options, run_metadata=metadata)
    nodes = [node for each in metadata.step_stats.dev_stats for node in each.node_stats]
    received = [node for node in nodes if node.node_name == "RecvTensor"]
    return sum(
        output.tensor_description.allocation_description.requested_bytes
        for node in received
        for output in node.output
    )
