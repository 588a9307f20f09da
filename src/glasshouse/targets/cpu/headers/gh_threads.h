/* The threads to work with: one for each of `most` places in the scratch memory, or fewer. */
int omp_get_max_threads(void), omp_get_num_threads(void), omp_get_thread_num(void);
GH_FN int gh_threads(int most) {
  const int threads = omp_get_max_threads();
  return threads < most ? threads : most;
}
