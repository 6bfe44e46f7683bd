"""Tunes each optimizer with the same number of trials, then scores its best trial.

Tuning uses January to June only. The scores are measured on July to December, with several seeds.
"""

import dataclasses
import time

import numpy as np
import pandas as pd

from flights.optimizers import CATALOGUE
from flights.report import loss_per_flight, score
from flights.training import Trainer

DECAY_STEPS = (50, 100, 200, 400, 800)
DECAY_RATES = (0.5, 0.7, 0.9)
FINALISTS = 4
ONE_SEED = "Jan-Jun, one seed"
ALL_SEEDS = "Jan-Jun, mean over seeds"
# How long a training step of one model with 64 flights takes on two cores.
MILLISECONDS = {"mlp": 0.3, "logistic": 0.15}


def trials(optimizer, count, base):
    """Returns `count` settings to try for one optimizer.

    Learning rates are evenly spaced on a logarithmic scale over the optimizer's range, which
    similar optimizers share. AdagradDecay gets no additional trials for its two additional
    hyperparameters: each learning rate has one decay step and decay rate, drawn at random.
    """
    random = np.random.RandomState(base.seed)
    low, high = np.log(CATALOGUE[optimizer].rates)
    rates = np.exp(low + (high - low) * (np.arange(count) + 0.5) / count)
    settings = []
    for rate in rates:
        rate = float(f"{rate:.3g}")
        one = dataclasses.replace(base, optimizer=optimizer, learning_rate=rate)
        if optimizer == "AdagradDecay":
            one = dataclasses.replace(
                one,
                decay_step=int(random.choice(DECAY_STEPS)),
                decay_rate=float(random.choice(DECAY_RATES)),
            )
        settings.append(one)
    return settings


def run_towers(flights, settings, batch_size, label):
    """Trains a tower (a model) for each of the `settings`, in one graph; returns predictions."""
    trainer = Trainer(
        flights, {f"tower_{number}": one for number, one in enumerate(settings)}, batch_size
    )
    return trainer.train_once(label)


def tune(flights, optimizers, count, seeds, batch_size, base):
    """Tunes on January to June, in two rounds.

    The first round trains every trial with one seed. One seed is enough to drop bad trials, but not
    to rank good trials: between neighbouring learning rates the log-loss differs less than between
    seeds. So the second round trains the `FINALISTS` best trials of each optimizer again, with all
    `seeds`. The trial with the lowest mean log-loss is the best.

    Returns:
      A pair: a dict from optimizer to its best `Settings`, and a DataFrame of all trials.
    """
    first_half = flights.first(int((flights.month <= 6).sum()))

    def losses(settings, label):
        predictions = run_towers(first_half, settings, batch_size, label)
        means = [loss_per_flight(first_half.late, values).mean() for values in predictions]
        return np.nan_to_num(means, nan=np.inf)  # nan: diverged

    settings = [one for name in optimizers for one in trials(name, count, base)]
    columns = ["optimizer", "learning_rate", "decay_step", "decay_rate"]
    table = pd.DataFrame([dataclasses.asdict(one) for one in settings])[columns]
    table = table.astype({"decay_step": object, "decay_rate": object})
    table.loc[table["optimizer"] != "AdagradDecay", ["decay_step", "decay_rate"]] = ""
    table[ONE_SEED] = losses(settings, "trials")

    rank = table.groupby("optimizer")[ONE_SEED].rank(method="first")
    finalists = table.index[rank <= FINALISTS]
    runs = [dataclasses.replace(settings[row], seed=seed) for row in finalists for seed in seeds]
    means = losses(runs, "finalists").reshape(len(finalists), len(seeds)).mean(axis=1)
    table[ALL_SEEDS] = pd.Series(means, index=finalists)
    best = table.groupby("optimizer")[ALL_SEEDS].idxmin()
    return {name: settings[best[name]] for name in optimizers}, table


def measure(flights, best, seeds, batch_size):
    """Returns the scores of July to December, one row per optimizer and seed."""
    runs = [
        (name, dataclasses.replace(one, seed=seed)) for name, one in best.items() for seed in seeds
    ]
    predictions = run_towers(flights, [one for _, one in runs], batch_size, "the year")
    second_half = flights.month >= 7
    rows = []
    for (name, one), values in zip(runs, predictions):
        loss, auc = score(flights.late[second_half], values[second_half])
        rows.append({"optimizer": name, "seed": one.seed, "log-loss": loss, "AUC": auc})
    return pd.DataFrame(rows)


def spread(table, optimizers):
    """Returns mean, standard deviation and range over the seeds, one row per optimizer."""
    rows = {}
    for name in optimizers:
        runs = table[table["optimizer"] == name]
        rows[name] = {
            metric: f"{runs[metric].mean():.4f} ± {runs[metric].std(ddof=1):.4f}"
            for metric in ("log-loss", "AUC")
        }
        rows[name]["lowest"] = f"{runs['log-loss'].min():.4f}"
        rows[name]["highest"] = f"{runs['log-loss'].max():.4f}"
    return pd.DataFrame.from_dict(rows, orient="index")


def verdict(table, optimizers):
    """Returns sentences that compare the best optimizer with each of the other optimizers."""
    losses = table.pivot(index="seed", columns="optimizer", values="log-loss")
    best = min(optimizers, key=lambda name: losses[name].mean())
    lines = []
    for name in optimizers:
        if name != best:
            gap = losses[name] - losses[best]
            lines.append(
                f"{best} is better than {name} by {gap.mean():.4f} on average, and better in "
                f"{(gap > 0).sum()} of {len(gap)} seeds."
            )
    return "\n".join(lines)


def sweep(flights, optimizers, count, seed_count, batch_size, base):
    """Runs and prints the whole sweep; returns the tables of `tune` and of `measure`."""
    half_years = count + min(FINALISTS, count) * seed_count + 2 * seed_count
    steps = half_years * len(optimizers) * flights.size / 2 / batch_size
    seconds = steps * MILLISECONDS[base.model] / 1000
    print(
        f"{base.model}: {count} trials on January-June and {seed_count} seeds on the year for "
        f"each of {', '.join(optimizers)}; about {seconds:.0f} s."
    )
    begin = time.time()
    # The scores are measured with seeds that tuning has not used.
    measured = range(base.seed, base.seed + seed_count)
    tuned = range(base.seed + seed_count, base.seed + 2 * seed_count)
    best, table = tune(flights, optimizers, count, tuned, batch_size, base)
    text = {"index": False, "na_rep": "", "float_format": "{:.4f}".format}
    print("\nTrials, log-loss on January-June only:")
    print(table.to_string(**text))
    print("\nBest trial of each optimizer:")
    print(table.loc[table.groupby("optimizer")[ALL_SEEDS].idxmin()].to_string(**text))
    results = measure(flights, best, measured, batch_size)
    print(f"\nJuly-December, {seed_count} seeds, mean ± standard deviation:")
    print(spread(results, optimizers).to_string())
    if base.model == "logistic":
        print("The initial values are zeros: all seeds give the same run, hence no deviation.")
    print(verdict(results, optimizers))
    print(f"{time.time() - begin:.0f} s.")
    return table, results
