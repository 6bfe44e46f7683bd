"""Trains a wide and deep model on census-like data, in the style of TensorFlow's 2018 tutorials."""

import os
import random
import shutil
import tempfile

import tensorflow as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string("model_dir", "", "Where to store the model; a temporary folder if empty.")
flags.DEFINE_integer("train_steps", 60, "Number of training steps.")
flags.DEFINE_integer("batch_size", 32, "Examples per step.")

COLUMNS = ["age", "education", "occupation", "hours", "label"]
DEFAULTS = [[0.0], [""], [""], [0.0], [0]]
EDUCATIONS = ["Bachelors", "HS-grad", "11th", "Masters"]


def write_examples(path, count, seed):
    rows = random.Random(seed)
    with tf.gfile.Open(path, "w") as output:
        for _ in range(count):
            age, hours = rows.randint(18, 80), rows.randint(10, 60)
            education, occupation = rows.choice(EDUCATIONS), "job%d" % rows.randint(0, 30)
            label = int(age + hours + 25 * (education == "Masters") > 95)
            output.write("%d,%s,%s,%d,%d\n" % (age, education, occupation, hours, label))


def build_columns():
    age = tf.feature_column.numeric_column("age")
    hours = tf.feature_column.numeric_column("hours")
    education = tf.feature_column.categorical_column_with_vocabulary_list("education", EDUCATIONS)
    occupation = tf.feature_column.categorical_column_with_hash_bucket("occupation", 100)
    ages = tf.feature_column.bucketized_column(age, [18, 25, 30, 40, 50, 60])
    crossed = tf.feature_column.crossed_column([ages, "education"], 100)
    deep = [
        age,
        hours,
        tf.feature_column.indicator_column(education),
        tf.feature_column.embedding_column(occupation, dimension=8),
    ]
    return [education, occupation, ages, crossed], deep


def build_estimator(model_dir):
    wide, deep = build_columns()
    return tf.estimator.DNNLinearCombinedClassifier(
        model_dir=model_dir,
        linear_feature_columns=wide,
        linear_optimizer=tf.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
        dnn_feature_columns=deep,
        dnn_optimizer=tf.contrib.opt.LazyAdamOptimizer(0.01),
        dnn_hidden_units=[16, 8],
        config=tf.estimator.RunConfig(tf_random_seed=1, save_checkpoints_steps=30),
    )


def input_fn(path, epochs):
    def parse(line):
        features = dict(zip(COLUMNS, tf.decode_csv(line, DEFAULTS)))
        label = features.pop("label")
        return features, label

    dataset = tf.data.TextLineDataset(path).map(parse)
    return dataset.repeat(epochs).batch(FLAGS.batch_size)


def serving_input_fn():
    wide, deep = build_columns()
    spec = tf.feature_column.make_parse_example_spec(wide + deep)
    return tf.estimator.export.build_parsing_serving_input_receiver_fn(spec)()


def main(_):
    model_dir = FLAGS.model_dir or tempfile.mkdtemp()
    train, test = os.path.join(model_dir, "train.csv"), os.path.join(model_dir, "test.csv")
    tf.gfile.MakeDirs(model_dir)
    write_examples(train, 500, seed=1)
    write_examples(test, 200, seed=2)
    model = build_estimator(model_dir)
    exporter = tf.estimator.FinalExporter("final", serving_input_fn)
    results, exports = tf.estimator.train_and_evaluate(
        model,
        tf.estimator.TrainSpec(lambda: input_fn(train, None), max_steps=FLAGS.train_steps),
        tf.estimator.EvalSpec(lambda: input_fn(test, 1), steps=None, exporters=[exporter]),
    )
    predictions = [each["class_ids"][0] for each in model.predict(lambda: input_fn(test, 1))]
    print("step %d, accuracy %.2f" % (results["global_step"], results["accuracy"]))
    print("%d of %d predicted above the limit" % (sum(predictions), len(predictions)))
    print("exported: %s" % tf.gfile.Exists(os.path.join(exports[0], b"saved_model.pb")))
    if not FLAGS.model_dir:
        shutil.rmtree(model_dir)


if __name__ == "__main__":
    tf.logging.set_verbosity(tf.logging.ERROR)
    tf.app.run()
