/* Plain loops with the arithmetic of optimizers: the limits that their steps are compared with.

   A variable is cut into pieces, which the threads share out. Adam and Momentum read each array
   once. LAMB and LARS read their arrays a second time, because each number that they write depends
   on the norm of the whole variable. */
#include <math.h>

typedef struct { float *w, *g, *m, *v; long size; } piece;

static const float rate = 1e-3f, decay = 1e-2f, epsilon = 1e-8f;

#define EACH(i, n) for (long i = 0; i < (n); ++i)
#define ARRAYS(p) \
  float *restrict w = p.w, *restrict m = p.m, *restrict v = p.v; \
  const float *restrict g = p.g; \
  (void)w, (void)g, (void)m, (void)v

static inline void moments(const float g, float *m, float *v) {
  *m += (g - *m) * 0.1f;
  *v += (g * g - *v) * 0.001f;
}

void adam(const piece *pieces, long count) {
#pragma omp parallel for schedule(static)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    EACH(j, pieces[i].size) {
      moments(g[j], m + j, v + j);
      w[j] -= rate * m[j] / (sqrtf(v[j]) + epsilon);
    }
  }
}

void momentum(const piece *pieces, long count) {
#pragma omp parallel for schedule(static)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    EACH(j, pieces[i].size) {
      m[j] = 0.9f * m[j] + g[j];
      w[j] -= rate * m[j];
    }
  }
}

/* All pieces are of one variable. */
void lamb(const piece *pieces, long count) {
  double of_w = 0, of_u = 0;
#pragma omp parallel for schedule(static) reduction(+ : of_w, of_u)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    float sum_w = 0, sum_u = 0;
    EACH(j, pieces[i].size) {
      moments(g[j], m + j, v + j);
      float u = m[j] / (sqrtf(v[j]) + epsilon) + decay * w[j];
      sum_w += w[j] * w[j];
      sum_u += u * u;
    }
    of_w += sum_w;
    of_u += sum_u;
  }
  const float ratio = rate * (float)sqrt(of_w / (of_u + epsilon));
#pragma omp parallel for schedule(static)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    EACH(j, pieces[i].size) w[j] -= ratio * (m[j] / (sqrtf(v[j]) + epsilon) + decay * w[j]);
  }
}

/* All pieces are of one variable. */
void lars(const piece *pieces, long count) {
  double of_w = 0, of_g = 0;
#pragma omp parallel for schedule(static) reduction(+ : of_w, of_g)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    float sum_w = 0, sum_g = 0;
    EACH(j, pieces[i].size) {
      sum_w += w[j] * w[j];
      sum_g += g[j] * g[j];
    }
    of_w += sum_w;
    of_g += sum_g;
  }
  const float ratio = rate * (float)sqrt(of_w / (of_g + epsilon));
#pragma omp parallel for schedule(static)
  EACH(i, count) {
    ARRAYS(pieces[i]);
    EACH(j, pieces[i].size) {
      m[j] = 0.9f * m[j] + ratio * (g[j] + decay * w[j]);
      w[j] -= m[j];
    }
  }
}
