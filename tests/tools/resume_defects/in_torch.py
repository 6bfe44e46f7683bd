"""Resumes in PyTorch."""

import copy
import functools
import os

import torch

from tests.tools.resume_defects import STEPS, Case

CASES = []


class Model(torch.nn.Module):
    """Has two parameters of the same shape, and two biases of the same shape."""

    def __init__(self, is_reversed=False):
        super().__init__()
        parts = {
            "embed": torch.nn.Linear(8, 8),
            "hidden": torch.nn.Linear(8, 8),
            "norm": torch.nn.BatchNorm1d(8),
            "out": torch.nn.Linear(8, 4),
        }
        for name in reversed(list(parts)) if is_reversed else parts:
            setattr(self, name, parts[name])

    def forward(self, x):
        return self.out(self.norm(torch.relu(self.hidden(torch.tanh(self.embed(x))))))


class Lora(torch.nn.Module):
    """Has two adapters of the same shapes."""

    def __init__(self):
        super().__init__()
        for name in "a", "b":
            setattr(self, f"down_{name}", torch.nn.Parameter(torch.randn(8, 2)))
            setattr(self, f"up_{name}", torch.nn.Parameter(torch.randn(2, 8)))

    def forward(self, x):
        return torch.tanh(x @ self.down_a @ self.up_a) @ self.down_b @ self.up_b


def train(model, optimizer, scheduler=None, steps=STEPS):
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(torch.randn(16, 8)) - 1) ** 2).mean().backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def groups(model):
    """Returns parameter groups: biases have no weight decay."""
    biases = [p for n, p in model.named_parameters() if n.endswith("bias")]
    others = [p for n, p in model.named_parameters() if not n.endswith("bias")]
    return [{"params": others, "weight_decay": 0.1}, {"params": biases, "weight_decay": 0.0}]


def adam(parameters, **arguments):
    return torch.optim.AdamW(parameters, **dict(dict(lr=0.01), **arguments))


def resumed(saved, make, model=None, load_model=True, load_optimizer=True):
    """Returns a new model and its optimizer, with the saved states."""
    model = model or Model()
    optimizer = make(model.parameters())
    if load_model:
        model.load_state_dict(saved["model"])
    if load_optimizer:
        optimizer.load_state_dict(copy.deepcopy(saved["optimizer"]))
    return model, optimizer


def case(variable, slot, cause, make=adam, model=Model):
    """Adds a defect: the function gets what was saved, and returns the state after the load."""

    def decorate(function):
        def made(folder):
            net = model()
            optimizer = make(net.parameters())
            train(net, optimizer)
            saved = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
            return write(folder, saved), function(copy.deepcopy(saved))

        CASES.append((function.__name__, made, variable, slot, cause))
        return function

    return decorate


def write(folder, saved):
    path = os.path.join(folder, f"{len(os.listdir(folder))}.pt")
    torch.save(saved, path)
    return path


def live(model, optimizer):
    return {"model": model, "optimizer": optimizer}


def changed_slots(saved, make, change):
    """Returns the state after `change` was called with the slots of each parameter."""
    model, optimizer = resumed(saved, make)
    for p in model.parameters():
        change(optimizer.state[p])
    return live(model, optimizer)


def changed_groups(saved, make, **values):
    model, optimizer = resumed(saved, make)
    for group in optimizer.param_groups:
        group.update(values)
    return live(model, optimizer)


@case("embed.weight", "exp_avg", "missing")
def optimizer_not_loaded(saved):
    return live(*resumed(saved, adam, load_optimizer=False))


@case("embed.weight", "exp_avg", "moved")
def order_of_parameters_changed(saved):
    model = Model(is_reversed=True)
    model.load_state_dict(saved["model"])
    parameters = dict(model.named_parameters())
    order = ["hidden", "embed", "norm", "out"]
    optimizer = adam([parameters[f"{n}.{k}"] for n in order for k in ("weight", "bias")])
    optimizer.load_state_dict(saved["optimizer"])
    return live(model, optimizer)


@case("embed.weight", "step", "cast")
def steps_cast_to_bfloat16(saved):
    return live(*resumed(saved, adam))  # see `past_256`


@case("embed.weight", "exp_avg", "cast")
def moments_cast_to_bfloat16(saved):
    def change(slots):
        for name in "exp_avg", "exp_avg_sq":
            slots[name] = slots[name].bfloat16()

    return changed_slots(saved, adam, change)


@case("embed.weight", "exp_avg", "cast")
def moments_went_through_float16(saved):
    def change(slots):
        slots["exp_avg"] = slots["exp_avg"].half().float()

    return changed_slots(saved, adam, change)


@case("embed.weight", "exp_avg", "moved")
def moments_swapped(saved):
    def change(slots):
        slots["exp_avg"], slots["exp_avg_sq"] = slots["exp_avg_sq"], slots["exp_avg"]

    return changed_slots(saved, adam, change)


@case("embed.weight", "exp_avg", "lost")
def first_moments_set_to_zero(saved):
    return changed_slots(saved, adam, lambda slots: slots["exp_avg"].zero_())


@case("embed.weight", "step", "step")
def steps_as_new_tensors_for_capturable(saved):
    def change(slots):
        slots["step"] = torch.zeros(())

    return changed_slots(saved, adam, change)


@case("embed.weight", "step", "step")
def steps_count_epochs(saved):
    return changed_slots(saved, adam, lambda slots: slots["step"].fill_(3))


@case("embed.weight", "weight_decay", "changed", functools.partial(adam, weight_decay=0.1))
def weight_decay_lost(saved):
    return changed_groups(saved, adam, weight_decay=0.0)


@case("embed.weight", "betas[1]", "changed", functools.partial(adam, betas=(0.9, 0.95)))
def betas_of_the_program_win(saved):
    return changed_groups(saved, adam, betas=(0.9, 0.999))


@case("embed.weight", "lr", "changed")
def rate_of_the_program_wins(saved):
    return changed_groups(saved, adam, lr=0.1)


@case("embed.weight", "amsgrad", "changed", functools.partial(adam, amsgrad=True))
def amsgrad_flag_lost(saved):
    return changed_groups(saved, adam, amsgrad=False)


@case("embed.weight", "max_exp_avg_sq", "missing", functools.partial(adam, amsgrad=True))
def amsgrad_maximum_lost(saved):
    return changed_slots(saved, adam, lambda slots: slots.pop("max_exp_avg_sq"))


SGD = functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9)


@case("embed.weight", "momentum_buffer", "missing", SGD)
def momentum_lost(saved):
    return changed_slots(saved, SGD, lambda slots: slots.pop("momentum_buffer"))


ADAGRAD = functools.partial(torch.optim.Adagrad, lr=0.01, initial_accumulator_value=0.1)


@case("embed.weight", "sum", "lost", ADAGRAD)
def accumulators_start_again(saved):
    fresh = resumed(saved, ADAGRAD, load_optimizer=False)
    for slots in fresh[1].state.values():
        slots["step"].fill_(STEPS)
    return live(*fresh)


@case("embed.weight", "", "")
def model_not_loaded(saved):
    torch.manual_seed(99)
    return live(*resumed(saved, adam, load_model=False))


@case("embed.weight", "", "cast")
def weights_went_through_bfloat16(saved):
    model, optimizer = resumed(saved, adam)
    for p in model.parameters():
        p.data = p.data.bfloat16().float()
    return live(model, optimizer)


@case("hidden.weight", "", "transposed")
def layer_converted_with_transposed_weights(saved):
    saved["model"]["hidden.weight"] = saved["model"]["hidden.weight"].t()
    return live(*resumed(saved, adam))


@case("embed.weight", "exp_avg", "transposed")
def moments_read_in_columns(saved):
    def change(slots):
        slots["exp_avg"] = slots["exp_avg"].t().reshape(slots["exp_avg"].shape)

    return changed_slots(saved, adam, change)


@case("embed.weight", "exp_avg", "reordered")
def shards_in_another_order(saved):
    def change(slots):
        slots["exp_avg"] = torch.cat(slots["exp_avg"].chunk(2)[::-1])

    return changed_slots(saved, adam, change)


@case("embed.weight", "exp_avg", "missing")
def parameter_frozen_before_the_optimizer(saved):
    model, whole = resumed(saved, adam)
    model.embed.requires_grad_(False)
    optimizer = adam([p for p in model.parameters() if p.requires_grad])
    for p in model.parameters():
        if p.requires_grad:
            optimizer.state[p] = whole.state[p]
    return live(model, optimizer)


@case("norm.running_mean", "", "lost")
def buffers_not_loaded(saved):
    for name in "norm.running_mean", "norm.running_var", "norm.num_batches_tracked":
        saved["model"].pop(name)
    model, optimizer = Model(), None
    model.load_state_dict(saved["model"], strict=False)
    optimizer = adam(model.parameters())
    optimizer.load_state_dict(saved["optimizer"])
    return live(model, optimizer)


@case("up_a", "exp_avg", "moved", adam, Lora)
def adapters_in_another_order(saved):
    model = Lora()
    model.load_state_dict(saved["model"])
    optimizer = adam([model.down_a, model.down_b, model.up_a, model.up_b])
    optimizer.load_state_dict(saved["optimizer"])
    return live(model, optimizer)


def whole_program(folder, change):
    """Saves model, averages, optimizer with groups and scheduler, and resumes with `change`."""

    def program():
        model = Model()
        optimizer = adam(groups(model))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
        return {"model": model, "optimizer": optimizer, "scheduler": scheduler}

    first = program()
    train(first["model"], first["optimizer"], first["scheduler"])
    averages = {n: x * 0.9 + 0.01 for n, x in first["model"].state_dict().items() if x.ndim}
    names = [
        n
        for g in first["optimizer"].param_groups
        for p in g["params"]
        for n, x in first["model"].named_parameters()
        if x is p
    ]
    saved = {name: part.state_dict() for name, part in first.items()}
    saved["optimizer"] = copy.deepcopy(saved["optimizer"])
    for group in saved["optimizer"]["param_groups"]:
        group["param_names"] = [names[i] for i in group["params"]]
    saved["ema"] = averages
    path = write(folder, saved)
    saved = copy.deepcopy(saved)
    second = program()
    for name, part in second.items():
        part.load_state_dict(saved[name])
    second["ema"] = saved["ema"]
    return path, change(second, saved) or second


def program_case(variable, slot, cause):
    def decorate(function):
        made = functools.partial(whole_program, change=function)
        CASES.append((function.__name__, made, variable, slot, cause))
        return function

    return decorate


@program_case("scheduler", "last_epoch", "step")
def scheduler_not_restored(second, saved):
    optimizer = adam(groups(Model()))
    second["scheduler"] = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)


@program_case("embed.weight", "lr", "reset")
def scheduler_made_after_the_load(second, saved):
    for group in second["optimizer"].param_groups:
        group["lr"] = group["initial_lr"]


@program_case("embed.bias", "weight_decay", "changed")
def groups_merged(second, saved):
    model = second["model"]
    optimizer = adam(model.parameters(), weight_decay=0.1)
    for group in optimizer.param_groups:
        group["lr"] = second["optimizer"].param_groups[0]["lr"]
        group["initial_lr"] = second["optimizer"].param_groups[0]["initial_lr"]
    optimizer.state.update(second["optimizer"].state)
    second["optimizer"] = optimizer


@program_case("embed.weight", "", "average")
def averages_restored_into_weights(second, saved):
    second["model"].load_state_dict(saved["ema"], strict=False)


@program_case("ema", "embed.weight", "moved")
def averages_start_again_from_weights(second, saved):
    second["ema"] = {n: x.clone() for n, x in second["model"].state_dict().items() if x.ndim}


def defects(folder, seed):
    torch.manual_seed(seed)
    for name, make, variable, slot, cause in CASES:
        before, after = make(folder)
        if name == "steps_cast_to_bfloat16":
            before, after = past_256(before, folder)
        step = {"steps_cast_to_bfloat16": 257, "momentum_lost": None}.get(name, STEPS)
        yield Case(name, before, after, variable, slot, cause, step)


OPTIMIZERS = [
    *(functools.partial(torch.optim.SGD, lr=0.01, momentum=m) for m in (0, 0.9)),
    *(functools.partial(torch.optim.Adam, lr=0.01, amsgrad=each) for each in (False, True)),
    *(
        functools.partial(getattr(torch.optim, name), lr=0.01)
        for name in (
            "AdamW",
            "Adagrad",
            "RMSprop",
            "Adadelta",
            "Adamax",
            "NAdam",
            "RAdam",
            "ASGD",
            "Rprop",
        )
    ),
    functools.partial(torch.optim.RMSprop, lr=0.01, centered=True, momentum=0.5),
]


def sound(folder, random, i):
    """Returns a sound resume: a file, and the live state or another file."""
    torch.manual_seed(random.randrange(2**31))
    make = OPTIMIZERS[i % len(OPTIMIZERS)]
    first, second = Model(), Model()
    dtype = random.choice([torch.float32, torch.float32, torch.float64])
    first, second = first.to(dtype), second.to(dtype)
    kind = random.choice(["plain", "named", "groups", "scheduler", "no steps", "prefix"])
    parts = []
    torch.set_default_dtype(dtype)
    try:
        for model in first, second:
            parameters = model.parameters()
            if kind == "named":
                parameters = model.named_parameters()
            if kind == "groups":
                parameters = (
                    groups(model)
                    if "SGD" in str(make)
                    else [{"params": [p]} for p in model.parameters()]
                )
            optimizer = make(parameters)
            found = {"model": model, "optimizer": optimizer}
            if kind == "scheduler":
                found["scheduler"] = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 40)
            parts.append(found)
        one, two = parts
        if kind != "no steps":
            train(first, one["optimizer"], one.get("scheduler"), random.randrange(1, 40))
    finally:
        torch.set_default_dtype(torch.float32)
    saved = {name: part.state_dict() for name, part in one.items()}
    if kind == "prefix":
        saved["model"] = {f"module.{n}": x for n, x in saved["model"].items()}
    saved["epoch"], saved["rng"] = 3, torch.get_rng_state()
    path = write(folder, saved)
    saved = torch.load(path, weights_only=True)
    if kind == "prefix":
        saved["model"] = {n[len("module.") :]: x for n, x in saved["model"].items()}
    for name, part in two.items():
        part.load_state_dict(saved[name])
    if random.random() < 0.3:
        two["optimizer"].param_groups[0]["foreach"] = False
    name = f"{make} {kind}"
    end = random.randrange(3)
    if end == 0:
        return name, path, two
    if end == 1 or kind == "groups":
        return name, path, write(folder, {n: part.state_dict() for n, part in two.items()})
    bare = write(folder, one["optimizer"].state_dict())
    return name, bare, two["optimizer"]


def past_256(path, folder):
    """Returns a saved state after step 257, and the same with steps of bfloat16."""
    saved = torch.load(path, weights_only=True)
    for slots in saved["optimizer"]["state"].values():
        slots["step"] = torch.tensor(257.0)
    before = write(folder, saved)
    for slots in saved["optimizer"]["state"].values():
        slots["step"] = slots["step"].bfloat16()
    return before, live(*resumed(saved, adam))
