"""Trains with SlotSummaryHook, and takes a screenshot of TensorBoard with the slots.

python -m benchmarks.gallery.slots FOLDER [CHROMIUM]
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from urllib.parse import quote

import tensorflow.compat.v1 as tf

import legacy_opt
from benchmarks.gallery.files import IMAGES, write
from benchmarks.gallery.style import shrink
from flights.data import load_flights
from flights.model import Settings, build_tower

STEPS, BATCH, EVERY = 2000, 64, 20
NAMES = ("Adagrad", "AdagradDecay")
RATE = 0.323  # of both, so that only the decay differs
TAGS = "(bias|wide_dense)/accumulator/max"  # a regular expression
SIZE = (1000, 480)
SECONDS = 60


def train(flights, name, folder):
    """Trains for `STEPS` steps, and writes event files."""
    with tf.Graph().as_default():
        ids = tf.placeholder(tf.int32, [None, flights.ids.shape[1]])
        dense = tf.placeholder(tf.float32, [None, flights.dense.shape[1]])
        late = tf.placeholder(tf.float32, [None])
        settings = Settings(name, RATE)
        tower = build_tower(ids, dense, late, flights.vocabulary_size, settings, "flights")
        tf.add_to_collection(tf.GraphKeys.GLOBAL_STEP, tower.global_step)
        slots = ["accumulator"]
        hook = legacy_opt.SlotSummaryHook(tower.optimizer, folder, EVERY, slots=slots)
        with tf.train.SingularMonitoredSession([hook]) as session:
            for step in range(STEPS):
                batch = slice(step * BATCH, (step + 1) * BATCH)
                values = flights.ids[batch], flights.dense[batch], flights.late[batch]
                session.run(tower.train_op, dict(zip((ids, dense, late), values)))


def free_port():
    """Returns the number of a port that no program listens to."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def screenshot(folder, browser, path):
    """Shows the folder in TensorBoard, and writes a PNG of the page."""
    port = free_port()
    home, name = os.path.split(os.path.abspath(folder))
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", name, "--port", str(port)]
    server = subprocess.Popen(command, cwd=home, stderr=subprocess.DEVNULL)
    page = f"http://localhost:{port}/"
    try:
        for _ in range(SECONDS):
            try:
                urllib.request.urlopen(page + "data/runs", timeout=5).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(1)
        time.sleep(3)  # until the event files are read
        with tempfile.TemporaryDirectory() as home:
            command = [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--hide-scrollbars",
            ]
            command += [f"--user-data-dir={home}", "--virtual-time-budget=30000"]
            command += ["--window-size={},{}".format(*SIZE), f"--screenshot={path}"]
            command += [f"{page}?darkMode=false#scalars&tagFilter={quote(TAGS)}&_smoothingWeight=0"]
            subprocess.run(command, check=True, timeout=3 * SECONDS, stderr=subprocess.DEVNULL)
    finally:
        server.terminate()
        server.wait()


def main(folder, browser="chromium"):
    """Writes tensorboard.png, and tensorboard.json, which says what was run."""
    flights = load_flights().first(STEPS * BATCH)
    for name in NAMES:
        shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
        train(flights, name, os.path.join(folder, name))
    path = IMAGES / "tensorboard.png"
    screenshot(folder, browser, path)
    shrink(path)
    write(
        "tensorboard",
        {
            "what": f"{STEPS:,} steps of {BATCH} flights, TensorFlow {tf.__version__}, learning "
            f"rate {RATE}; statistics every {EVERY} steps",
            "tags": TAGS,
            "runs": list(NAMES),
        },
    )


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main(*sys.argv[1:])
