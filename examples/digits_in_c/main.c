/* Trains the network of export.py in C: train_digits FOLDER [EPOCHS]. It reads digits.bin and the state
   from the folder, prints the accuracy on the held-out images after each epoch, and leaves the trained
   state in trained.safetensors, which gh.load reads. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict.h"
#include "train.h"

enum { PIXELS = 64, BATCH = 64, CLASSES = 10, HELD_OUT = 360 };
static const int64_t batch_shape[] = {BATCH, 1, 8, 8}, held_out_shape[] = {HELD_OUT, 1, 8, 8};
static const int64_t label_shape[] = {BATCH}, scores_shape[] = {HELD_OUT, CLASSES};

typedef struct { int64_t count; float *images; int64_t *labels; } digit_set;

static int read_set(FILE *file, digit_set *to) {
  if (fread(&to->count, 8, 1, file) != 1 || to->count < 1 || to->count > 1 << 20) return 0;
  const size_t count = (size_t)to->count;
  to->images = malloc(count * PIXELS * sizeof *to->images);
  to->labels = malloc(count * sizeof *to->labels);
  return to->images && to->labels && fread(to->images, PIXELS * 4, count, file) == count &&
         fread(to->labels, 8, count, file) == count;
}

static void fail(const char *what, const gh_context *context) {
  fprintf(stderr, "%s: %s\n", what, context ? gh_error(context) : "it is not there");
  exit(1);
}

static void shuffle(int64_t *order, int64_t count) {
  static uint64_t state = 1; /* a linear congruence (Knuth, MMIX) */
  for (int64_t i = count - 1; i > 0; i--) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const int64_t j = (int64_t)((state >> 33) % (uint64_t)(i + 1)), kept = order[i];
    order[i] = order[j];
    order[j] = kept;
  }
}

static double train_epoch(gh_context *context, const digit_set *set, int64_t *order) {
  static float images[BATCH * PIXELS];
  static int64_t labels[BATCH];
  float loss;
  double sum = 0;
  const gh_tensor inputs[] = {{GH_F32, 4, batch_shape, images}, {GH_I64, 1, label_shape, labels}};
  const gh_tensor outputs[] = {{GH_F32, 0, NULL, &loss}};
  shuffle(order, set->count);
  const int64_t batches = set->count / BATCH;
  for (int64_t b = 0; b < batches; b++) {
    for (int64_t i = 0; i < BATCH; i++) {
      const int64_t at = order[b * BATCH + i];
      memcpy(images + i * PIXELS, set->images + at * PIXELS, PIXELS * 4);
      labels[i] = set->labels[at];
    }
    if (gh_program_run(context, inputs, 2, outputs, 1)) fail("train", context);
    sum += loss;
  }
  return sum / (double)batches;
}

static double accuracy(gh_context *context, const digit_set *set) {
  static float scores[HELD_OUT * CLASSES];
  const gh_tensor inputs[] = {{GH_F32, 4, held_out_shape, set->images}};
  const gh_tensor outputs[] = {{GH_F32, 2, scores_shape, scores}};
  if (gh_program_run(context, inputs, 1, outputs, 1)) fail("predict", context);
  int good = 0;
  for (int i = 0; i < HELD_OUT; i++) {
    int best = 0;
    for (int k = 1; k < CLASSES; k++)
      if (scores[i * CLASSES + k] > scores[i * CLASSES + best]) best = k;
    good += best == set->labels[i];
  }
  return 100.0 * good / HELD_OUT;
}

int main(int count, char **args) {
  const char *folder = count > 1 ? args[1] : ".";
  const int epochs = count > 2 ? atoi(args[2]) : 12;
  char path[1024];
  digit_set train_set = {0}, held_out = {0};
  gh_context *training = NULL, *prediction = NULL;
  snprintf(path, sizeof path, "%s/digits.bin", folder);
  FILE *file = fopen(path, "rb");
  if (!file || !read_set(file, &train_set) || !read_set(file, &held_out) || held_out.count != HELD_OUT)
    fail("digits.bin", NULL);
  fclose(file);
  if (gh_create(&train, &training) || gh_create(&predict, &prediction)) fail("memory", NULL);
  snprintf(path, sizeof path, "%s/train.safetensors", folder);
  if (gh_load(training, path)) fail("train", training);
  int64_t *order = malloc((size_t)train_set.count * sizeof *order);
  if (!order) fail("memory", NULL);
  for (int64_t i = 0; i < train_set.count; i++) order[i] = i;
  double rate = 0.005, right = 0;
  for (int epoch = 1; epoch <= epochs; epoch++, rate *= 0.8) {
    if (gh_set(training, "lr", rate)) fail("lr", training);
    const double loss = train_epoch(training, &train_set, order);
    if (gh_copy(prediction, training)) fail("copy", prediction);
    right = accuracy(prediction, &held_out);
    printf("epoch %2d  loss %.4f  held out %.2f %%\n", epoch, loss, right);
  }
  snprintf(path, sizeof path, "%s/trained.safetensors", folder);
  if (gh_save(training, path)) fail("save", training);
  free(order), free(train_set.images), free(train_set.labels), free(held_out.images), free(held_out.labels);
  gh_free(training);
  gh_free(prediction);
  return right < 98.0;
}
