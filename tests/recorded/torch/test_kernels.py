"""Tests the level "native": what a step remembers of the last one, threads and processes."""

import copy
import multiprocessing
import os
import threading
import weakref

import pytest
import torch

from legacy_opt import recorded
from legacy_opt.recorded.records import Scalar
from legacy_opt.recorded.torch import RecordedOptimizer, kernels
from legacy_opt.recorded.torch.columns import Checked
from tests.recorded.references import EVERY_RULE, LAZY_ADAM, refused, with_two_rates

ADAM = recorded.load("AdamOptimizer")


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def parameters():
    """Returns parameters of all kinds: small, large, empty, without axes, not contiguous."""
    shapes = [(3, 4), (7,), (0, 5), (300, 300), (70_000,), (3, 4)]
    made = [drawn(*shape, seed=i) for i, shape in enumerate(shapes)]
    made += [drawn(5, 6, seed=8).t(), drawn(2, 3, seed=9)[:, :2]]
    return [torch.nn.Parameter(each) for each in made]


def clipped(record):
    """Returns the record with clipping by the global norm."""
    norm = {"clip_norm": Scalar(record.dtype, 0.5)}
    return record._replace(clipping="as given", hyperparameters={**record.hyperparameters, **norm})


def assert_equal(one, other):
    for x, y in zip(one, other):
        assert torch.equal(x, y)


@EVERY_RULE
@pytest.mark.parametrize("clips", [False, True])
def test_all_parameters_in_one_call(name, clips):
    record = clipped(recorded.load(name)) if clips else recorded.load(name)
    found = []
    for level in "exact", "native":
        mine = parameters()
        try:
            groups = [{"params": mine[:4]}, {"params": mine[4:], "axes": None}]
            optimizer = RecordedOptimizer(groups, record, level=level)
        except recorded.RecordError as error:
            pytest.skip(str(error))
        for step in range(4):
            for i, each in enumerate(mine):
                absent = (i + step) % 5 == 0
                each.grad = None if absent else drawn(*each.shape, seed=10 * step + i)
            optimizer.step()
        found.append(mine + [s for each in mine for s in optimizer.slots(each).values()])
    assert_equal(*found)


@pytest.mark.parametrize("names", ["wb", "bw"])
def test_kernels_with_the_same_source_and_other_scalars(names):
    found = []
    for level in "exact", "native":
        mine = [torch.nn.Parameter(torch.ones(5)) for _ in names]
        optimizer = RecordedOptimizer(list(zip(names, mine)), with_two_rates(), level)
        for _ in range(3):
            for each in mine:
                each.grad = torch.ones(5)
            optimizer.step()
        found.append(mine)
    assert_equal(*found)


def trained(level, steps, *shape, forgets=False):
    """Returns a parameter after steps, each of which is given the parameter and its optimizer.

    With `forgets`, no step knows what the last step has checked.
    """
    parameter = torch.nn.Parameter(drawn(*shape))
    optimizer = RecordedOptimizer([parameter], ADAM, level=level)
    for step in steps:
        parameter.grad = drawn(*parameter.shape, seed=1)
        step(parameter, optimizer)
        if forgets:
            optimizer._checked = Checked()
        optimizer.step()
    return [parameter.detach(), *optimizer.slots(parameter).values()]


def nothing(parameter, optimizer):
    """The tensors are those of the last step."""


def gradient_in_place(parameter, optimizer):
    parameter.grad.mul_(2)


def gradient_is_the_parameter(parameter, optimizer):
    parameter.grad = parameter.detach()


def gradient_overlaps_a_slot(parameter, optimizer):
    memory = torch.zeros(parameter.numel() + 1)
    memory[:-1] = optimizer.slots(parameter)["m"].reshape(-1)
    optimizer.slots(parameter)["m"] = memory[:-1].view(parameter.shape)
    parameter.grad = memory[1:].view(parameter.shape)


def gradient_is_transposed(parameter, optimizer):
    parameter.grad = parameter.grad.t().contiguous().t()


def gradient_is_expanded(parameter, optimizer):
    parameter.grad = torch.ones(1).expand(parameter.shape)


def slot_is_replaced(parameter, optimizer):
    optimizer.state[parameter]["v"] = optimizer.state[parameter]["v"] + 1


def state_is_loaded(parameter, optimizer):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def value_is_replaced(parameter, optimizer):
    parameter.data = parameter.data + 1


def value_is_transposed(parameter, optimizer):
    parameter.data = parameter.data.t().contiguous().t()


def slots_are_swapped(parameter, optimizer):
    m, v = optimizer.state[parameter].values()  # in the same order as before
    optimizer.state[parameter] = {"v": m.abs_(), "m": v}


def value_is_reshaped(parameter, optimizer):
    del optimizer.state[parameter]
    parameter.data = parameter.data.view(25)
    parameter.grad = drawn(25, seed=3)


CHANGES = [
    slots_are_swapped,
    value_is_reshaped,
    gradient_in_place,
    gradient_is_the_parameter,
    gradient_overlaps_a_slot,
]
CHANGES += [gradient_is_transposed, gradient_is_expanded, slot_is_replaced, state_is_loaded]
CHANGES += [value_is_replaced, value_is_transposed]


@pytest.mark.parametrize("level", ["native", "exact"])
@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_change_between_steps(change, level):
    steps = [nothing, nothing, change, nothing, nothing]
    expected = trained("exact", steps, 5, 5, forgets=True)
    assert_equal(trained(level, steps, 5, 5), expected)


def grows(parameter, optimizer):
    parameter.data = torch.ones(6, 5)
    parameter.grad = torch.ones(6, 5)


def is_on_meta(parameter, optimizer):
    parameter.grad = None
    torch.utils.swap_tensors(parameter, torch.nn.Parameter(torch.ones(5, 5, device="meta")))
    parameter.grad = torch.ones(5, 5, device="meta")


def slot_is_wide(parameter, optimizer):
    optimizer.state[parameter]["v"] = torch.ones(5, 5, dtype=torch.float64)


def slot_is_transposed(parameter, optimizer):
    optimizer.state[parameter]["m"].t_()  # at the same address


def slot_is_reshaped(parameter, optimizer):
    slot = optimizer.state[parameter]["m"]
    slot.data = slot.data.view(25)


def slot_has_integers(parameter, optimizer):
    slot = optimizer.state[parameter]["m"]
    slot.data = slot.data.view(torch.int32)


@pytest.mark.parametrize(
    "change, problem",
    [
        (grows, "/m' is float32 of the shape [5, 5], expected float32 of the shape [6, 5]"),
        (is_on_meta, "native kernels cannot train on meta"),
        (slot_is_wide, "/v' is float64 of the shape [5, 5], expected float32"),
        (slot_is_transposed, "/m' is not a contiguous array"),
        (slot_is_reshaped, "/m' is float32 of the shape [25], expected float32"),
        (slot_has_integers, "/m' is int32 of the shape [5, 5], expected float32"),
    ],
)
def test_tensors_that_do_not_fit_any_more(change, problem):
    refused(problem, trained, "native", [nothing, nothing, change], 5, 5)
    if change not in (is_on_meta, slot_is_transposed):
        refused(problem, trained, "exact", [nothing, nothing, change], 5, 5)


def test_axes_that_are_changed_in_place():
    found = []
    for level in "fresh", "exact", "native":
        parameter, axes = torch.nn.Parameter(drawn(4, 4)), []
        groups, record = (
            [{"params": [parameter], "axes": axes}],
            recorded.load("AdafactorOptimizer"),
        )
        optimizer = RecordedOptimizer(groups, record, "native" if level == "native" else "exact")
        for _ in range(2):
            parameter.grad = drawn(4, 4, seed=1)
            if level == "fresh":
                optimizer._checked = Checked()
            optimizer.step()
            axes[:] = [1, 0]
        found.append(parameter.detach())
    assert torch.equal(*found[:2]) and torch.equal(*found[1:])


@pytest.mark.parametrize("level", ["exact", "native"])
def test_gradients_in_other_strides(level):
    """With axes, a parameter may be contiguous in TensorFlow's order only."""
    found = []
    for axes in (1, 0), None:
        value = drawn(4, 3)
        parameter = torch.nn.Parameter(value.clone().t() if axes else value.clone())
        groups = [{"params": [parameter], "axes": axes}]
        optimizer = RecordedOptimizer(groups, ADAM, level=level)
        wide = drawn(8, 3)[::2]
        for gradient in drawn(4, 3), wide, torch.ones(()).expand(4, 3), wide.clone():
            gradient = gradient.t() if axes else gradient
            parameter.grad = gradient
            optimizer.step()
        found.append(parameter.detach().t() if axes else parameter.detach())
    assert torch.equal(*found)


def test_a_hyperparameter_that_is_a_vector():
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = RecordedOptimizer([parameter], ADAM)
    optimizer.param_groups[0]["lr"] = torch.tensor([0.1, 0.5])
    parameter.grad = torch.ones(2)
    refused("learning_rate must be a number, got an array of the shape [2]", optimizer.step)


def test_a_refused_step_changes_nothing():
    mine = [torch.nn.Parameter(drawn(4, 4, seed=i)) for i in range(2)]
    optimizer = RecordedOptimizer(mine, ADAM, level="native")
    for _ in range(2):
        for each in mine:
            each.grad = torch.ones(4, 4)
        optimizer.step()
    before = [each.detach().clone() for each in mine]
    optimizer.state[mine[1]]["m"] = torch.ones(3)
    refused("/m' is float32", optimizer.step)
    assert_equal(before, mine)
    assert optimizer.param_groups[0]["global_step"] == 2


def test_threads_of_pytorch_and_of_its_host():
    expected = trained("exact", [nothing] * 3, 400, 300)
    before = torch.get_num_threads()
    for threads in 1, 2, 5:
        torch.set_num_threads(threads)
        assert_equal(trained("native", [nothing] * 3, 400, 300), expected)
    torch.set_num_threads(before)
    found = {}

    def train(i):
        found[i] = trained("native", [nothing] * 3, 400, 300)

    both = [threading.Thread(target=train, args=(i,)) for i in range(2)]
    for each in both:
        each.start()
    for each in both:
        each.join()
    for i in range(2):
        assert_equal(found[i], expected)


def test_without_an_openmp(monkeypatch):
    expected = trained("native", [nothing] * 2, 400, 300)
    monkeypatch.setattr(kernels, "_team", lambda: None)
    assert_equal(trained("native", [nothing] * 2, 400, 300), expected)


def _child(queue, parameter, optimizer):
    optimizer.step()
    queue.put(parameter.detach().numpy().tobytes())


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process():
    """OpenMP's idle threads do not exist in a child: a team would wait for them for ever."""
    parameter = torch.nn.Parameter(torch.ones(400, 300))
    optimizer = RecordedOptimizer([parameter], ADAM, level="native")
    parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    # A daemon, so that a child that waits does not keep the tests from their end.
    child = context.Process(target=_child, args=(queue, parameter, optimizer), daemon=True)
    child.start()
    found = queue.get(timeout=60)  # PyTorch's own operations on large tensors would wait
    child.join()
    optimizer.step()
    assert found == parameter.detach().numpy().tobytes()


def _replica(rank, folder, level):
    method = f"file://{folder}/{level}"
    torch.distributed.init_process_group("gloo", method, rank=rank, world_size=2)
    torch.manual_seed(0)
    layers = torch.nn.Linear(30, 200), torch.nn.ReLU(), torch.nn.Linear(200, 1)
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Sequential(*layers), gradient_as_bucket_view=True
    )
    optimizer = RecordedOptimizer(model.parameters(), ADAM, level=level)
    for step in range(4):
        optimizer.zero_grad()
        model(drawn(8, 30, seed=10 * step + rank)).pow(2).sum().backward()
        optimizer.step()
    torch.save([each.detach() for each in model.parameters()], f"{folder}/{level}-{rank}")
    torch.distributed.barrier()
    os._exit(0)  # PyTorch's destructors of a process group and a replica may wait for each other


def test_replicas_in_two_processes(tmp_path):
    for level in "exact", "native":
        torch.multiprocessing.spawn(_replica, (str(tmp_path), level), nprocs=2)
    found = [torch.load(tmp_path / f"{level}-{i}") for level in ("exact", "native") for i in (0, 1)]
    for other in found[1:]:
        assert_equal(found[0], other)


def test_a_compiled_step_counts():
    """PyTorch 2.13 loses `copy_` to a scalar of float64, such as the count of RectifiedAdam."""
    parameter = torch.nn.Parameter(drawn(5))
    optimizer = RecordedOptimizer([parameter], recorded.load("RectifiedAdamOptimizer"), "exact")
    step = torch.compile(optimizer.step, backend="aot_eager")
    for _ in range(3):
        parameter.grad = torch.ones(5)
        step()
    assert optimizer.param_groups[0]["step"] == 3


def test_a_compiled_step():
    expected = trained("native", [nothing] * 3, 5, 5)
    parameter = torch.nn.Parameter(drawn(5, 5))
    optimizer = RecordedOptimizer([parameter], ADAM, level="native")
    step = torch.compile(optimizer.step)
    for _ in range(3):
        parameter.grad = drawn(5, 5, seed=1)
        step()
    assert_equal([parameter.detach(), *optimizer.slots(parameter).values()], expected)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_a_copy_has_its_own_tensors(level):
    parameter = torch.nn.Parameter(drawn(5, 5))
    optimizer = RecordedOptimizer([parameter], LAZY_ADAM, level=level)
    for _ in range(2):
        parameter.grad = torch.ones(5, 5)
        optimizer.step()
    before = parameter.detach().clone()
    other = copy.deepcopy(optimizer)
    (copied,) = other.param_groups[0]["params"]
    copied.grad = torch.ones(5, 5)
    other.step()
    assert torch.equal(parameter, before) and not torch.equal(copied, before)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_values_that_a_user_adds_to_the_state(level):
    def note(parameter, optimizer):
        optimizer.state[parameter]["note"] = "warm"

    found = trained(level, [nothing, note, nothing], 5, 5)
    expected = trained(level, [nothing, nothing, nothing], 5, 5)
    assert found.pop() == "warm"
    assert_equal(found, expected)


@pytest.mark.parametrize("level", ["exact", "native"])
def test_gradients_are_freed(level):
    parameter = torch.nn.Parameter(drawn(5, 5))
    optimizer = RecordedOptimizer([parameter], ADAM, level=level)
    for _ in range(2):
        parameter.grad = torch.ones(5, 5)
        optimizer.step()
        gradient, parameter.grad = weakref.ref(parameter.grad), None
        assert gradient() is None
